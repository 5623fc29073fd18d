"""Expectations over f against integrals by panels, for likelihoods of any width."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from support import integrals

import dgp_ppl as dgp
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods._mixture import _Program, briefly
from dgp_ppl.likelihoods._quadrature import choose, expectation, log_expectation, step_expectation

pytestmark = pytest.mark.usefixtures("x64")


def grid():
    """Rows of mean and sd of f, scale of the likelihood from 0.001 to 1000 sd, and y."""
    rows = []
    for sd in (1e-2, 10.0):
        for ratio in (1e-3, 0.02, 0.3, 1.0, 10.0, 1e3):
            for mean, away in ((0.0, 0.37), (1.5, -2.0), (-0.3, 0.0), (0.7, 6.0)):
                rows.append((mean, sd, sd * ratio, mean + sd * away))
    return jnp.array(rows).T


@pytest.mark.parametrize("guided", [False, True])
def test_values_and_gradients_are_the_integrals(guided):
    """Fixed nodes of a fixed spacing missed densities by up to 2 nats."""
    mean, sd, scale, y = grid()
    exact = integrals.expectation if guided else integrals.log_expectation

    @jax.jit
    def terms(m, s):
        marginals = Marginals(m[:, None], jnp.square(s)[:, None], guided)
        return dgp.observe(marginals, lambda f: dist.StudentT(4.0, f, scale)).log_prob(y)

    values = terms(mean, sd)
    for value, m, s, width, target in zip(values, *np.asarray(grid()), strict=True):
        log_p = lambda f, y=target, w=width: stats.t.logpdf(y, 4, f, w)  # noqa: E731
        wanted = exact(log_p, m, s, (target,))
        assert abs(value - wanted) < 1e-3 * max(1, abs(wanted)), (m, s, width, target)
    gradients = jax.jit(jax.grad(lambda m, s: terms(m, s).sum(), argnums=(0, 1)))(mean, sd)
    step = 1e-4 * jnp.minimum(sd, scale)
    for gradient, move in zip(gradients, ((step, 0.0), (0.0, step)), strict=True):
        up, down = (terms(mean + i * move[0], sd + i * move[1]) for i in (1, -1))
        # The bound falls by up to (sd / scale)² nats over one sd.
        size = 1 + np.abs(np.asarray(up)) if guided else 1.0
        wanted = (up - down) / (2 * step)
        assert (np.abs(gradient - wanted) * sd < 3e-3 * size * np.maximum(1, sd / scale)).all()


def test_steps_of_any_width():
    mean, sd = jnp.array([0.0, 0.0, -2.0]), jnp.array([1.0, 2.0, 0.5])
    step = lambda s: lambda f: jax.scipy.special.ndtr((f - 0.4) / s)  # noqa: E731
    found = jax.jit(lambda s: step_expectation(step(s), mean, sd))
    for width in (1e-8, 1e-3, 1.0, 1e3):
        exact = stats.norm.cdf((mean - 0.4) / np.hypot(sd, width))
        np.testing.assert_allclose(found(width), exact, atol=1e-5)


def test_a_plateau_with_two_edges():
    """Nodes 0.3 apart, or towards one of the edges alone, missed up to 0.1 nats."""
    mean, sd, width = jnp.zeros(3), jnp.array([3.0, 3.0, 30.0]), jnp.array([0.01, 0.1, 1e-4])
    inside = lambda f: jax.nn.log_sigmoid((1 - jnp.abs(f)) / width)  # noqa: E731
    wanted = np.log(stats.norm.cdf(1 / sd) - stats.norm.cdf(-1 / sd))
    found = jax.jit(lambda m, s: log_expectation(inside, m, s))(mean, sd)
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_log_p_goes_on_beyond_underflow():
    """One node where p was 0 cost 1e30 nats and more, as only one that is not possible may."""
    mean, sd = jnp.array([0.0, 0.5, -30.0, 0.0, 0.0]), jnp.array([6.0, 0.1, 2.0, 6.0, 6.0])
    tail = lambda f: jnp.where(jnp.abs(f) < 12, -jnp.abs(f), -jnp.inf)  # noqa: E731
    # The last row has a step, and is known everywhere.
    log_p = lambda f: jnp.where((jnp.arange(5) < 4)[None], tail(f), -20.0 * (f > 0.3))  # noqa: E731
    possible = lambda f: (jnp.abs(f) < 12) | (jnp.arange(5) != 3)[None]  # noqa: E731
    total = lambda m: ((v := expectation(log_p, m, sd, 20, possible)).sum(), v)  # noqa: E731
    slopes, values = jax.jit(jax.grad(total, has_aux=True))(mean)
    np.testing.assert_allclose(values[:3], [-6 * np.sqrt(2 / np.pi), -0.5, -30], rtol=1e-4)
    np.testing.assert_allclose(slopes, [0, -1, 1, 0, 0], atol=1e-4)
    np.testing.assert_allclose(values[4], -20 * stats.norm.sf(0.05), rtol=1e-4)
    assert values[3] < -1e30


def test_ranks_are_not_promoted():
    rows = jnp.zeros(2)
    log_p = lambda f: -jnp.abs(f - 0.4)  # noqa: E731
    with jax.numpy_rank_promotion("raise"):
        for function in (log_expectation, lambda *a: expectation(*a, 20), step_expectation):
            assert jax.eval_shape(lambda m, s, f=function: f(log_p, m, s), rows, rows).shape == (2,)


def test_a_costly_rule_is_compiled_where_a_row_wants_it():
    traced = []

    def costly(x):
        traced.append(x)
        return 2 * x

    # Within another such function it must not keep the program without the rule.
    inner = briefly(lambda program, x: choose(program(x), x < 1, costly, x))
    outer = briefly(lambda program, x: inner(program, x) + 1)
    x, program = jnp.zeros(3), _Program.from_closure(jnp.cos, jnp.zeros(3))
    np.testing.assert_array_equal(outer(program, x), 2.0)
    assert not traced
    np.testing.assert_array_equal(outer(program, x.at[0].set(5.0)), [11.0, 2.0, 2.0])
    np.testing.assert_array_equal(inner(program, x.at[1].set(3.0)), [1.0, 6.0, 1.0])
    assert traced
