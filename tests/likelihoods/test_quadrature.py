"""Expectations over f against integrals by panels, for likelihoods of any width."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats
from support import integrals

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods._quadrature import expectation, log_expectation, step_expectation

pytestmark = pytest.mark.usefixtures("x64")
HIGH = 1.0


def censored(f, y, s):
    inside, above = stats.norm.logpdf(y, f, s), special.log_ndtr((f - HIGH) / s)
    return above if y >= HIGH else inside


KINDS = {  # p(y | f) with scale s: NumPyro's, and log p by SciPy
    "student": (lambda f, s: dist.StudentT(4.0, f, s), lambda f, y, s: stats.t.logpdf(y, 4, f, s)),
    "laplace": (dist.Laplace, lambda f, y, s: -np.abs(y - f) / s - np.log(2 * s)),
    "censored": (lambda f, s: likelihoods.CensoredNormal(f, s, high=HIGH), censored),
}


def grid(kind):
    """Rows of mean and sd of f, scale of the likelihood, and y."""
    rows = []
    for sd in (1e-6, 1e-2, 1.0, 10.0, 1e3):
        for ratio in (1e-3, 0.02, 0.3, 1.0, 10.0, 1e3):
            for mean, away in ((0.0, 0.37), (1.5, -2.0), (-0.3, 0.0), (0.7, 6.0)):
                y = mean + sd * away
                rows.append((mean, sd, sd * ratio, min(y, HIGH) if kind == "censored" else y))
    return np.array(rows).T


def observed(kind, guided, mean, sd, scale, y):
    marginals = Marginals(mean[:, None], jnp.square(sd)[:, None], guided)
    return dgp.observe(marginals, lambda f: KINDS[kind][0](f, scale)).log_prob(y)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_densities_and_bounds_are_the_integrals(kind):
    """To 1e-3 nats for a width of the likelihood from 1e-3 to 1e3 of the latent sd."""
    mean, sd, scale, y = grid(kind)
    log_p = [lambda f, y=y, s=s: KINDS[kind][1](f, y, s) for y, s in zip(y, scale, strict=True)]
    density, bound = (
        jax.jit(lambda *a, g=g: observed(kind, g, *a))(mean, sd, scale, y) for g in (False, True)
    )
    for i, p in enumerate(log_p):
        places = (y[i], HIGH) if kind == "censored" else (y[i],)
        exact = integrals.log_expectation(p, mean[i], sd[i], places)
        assert abs(density[i] - exact) < 1e-3, (mean[i], sd[i], scale[i], y[i])
        exact = integrals.expectation(p, mean[i], sd[i], places)
        assert abs(bound[i] - exact) < 1e-3 * max(1, abs(exact)), (mean[i], sd[i], scale[i], y[i])


def test_values_that_were_wrong():
    """Densities that 160 nodes of fixed spacing missed by up to 2 nats."""
    rows = [("student", 0.0, 1.0, 0.02, y, None) for y in np.linspace(-2, 2, 23)]
    rows += [("student", 1.5, 2.0, 0.01, y, -1.623) for y in (1.2, 1.8)]
    rows += [("censored", 0.0, 10.0, 0.2, y, -3.222) for y in (-0.3, 0.0, 0.5)]
    for name in ("student", "censored"):
        mine = [row[1:] for row in rows if row[0] == name]
        mean, sd, scale, y = np.array([row[:4] for row in mine]).T
        found = jax.jit(lambda *a, k=name: observed(k, False, *a))(mean, sd, scale, y)
        for value, (m, s, width, target, known) in zip(found, mine, strict=True):
            log_p = lambda f: KINDS[name][1](f, target, width)  # noqa: B023, E731
            assert abs(value - integrals.log_expectation(log_p, m, s, (target, HIGH))) < 1e-3
            assert known is None or abs(value - known) < 2e-3


@pytest.mark.parametrize("guided", [False, True])
def test_gradients_equal_the_gradients_of_the_integrals(guided):
    mean, sd, scale, y = (jnp.asarray(a[:24]) for a in grid("student"))

    @jax.jit
    def terms(m, s):
        return observed("student", guided, m, s, scale, y)

    gradients = jax.jit(jax.grad(lambda m, s: terms(m, s).sum(), argnums=(0, 1)))(mean, sd)
    step = 1e-4 * jnp.minimum(sd, scale)
    for gradient, move in zip(gradients, ((step, 0.0), (0.0, step)), strict=True):
        up, down = (terms(mean + i * move[0], sd + i * move[1]) for i in (1, -1))
        # The bound falls by up to (sd / scale)² nats over one sd.
        size = 1 + np.abs(np.asarray(up)) if guided else 1.0
        wanted = (up - down) / (2 * step)
        assert (np.abs(gradient - wanted) * sd < 3e-3 * size * np.maximum(1, sd / scale)).all()


@pytest.mark.slow
def test_a_prediction_uses_them_within_vmap_and_jit():
    """Densities, distribution functions and quantiles of the distribution without f."""

    @jax.jit
    def predictive(means):
        def one(mean):
            marginals = Marginals(mean[:, None], jnp.ones((3, 1)), False)
            return dgp.observe(
                marginals, lambda f: dist.StudentT(4.0, f, 0.02 * mean[0])
            ).predictive()

        return jax.vmap(one)(means)

    means, y = jnp.array([[1.0, 0.2, 3.0], [0.5, 0.1, -1.0]]), jnp.array([0.3, 0.4, 0.5])
    mixtures = predictive(means)
    density = jax.vmap(lambda m: m.log_prob(y))(mixtures)
    below = jax.vmap(lambda m: m.cdf(y))(mixtures)
    for i, row in enumerate(np.asarray(means)):
        for j, mean in enumerate(row):
            log_p = lambda f: stats.t.logpdf(y[j], 4, f, 0.02 * row[0])  # noqa: B023, E731
            exact = integrals.log_expectation(log_p, mean, 1.0, (y[j],))
            assert abs(density[i, j] - exact) < 1e-3
            p = lambda f: stats.t.cdf(y[j], 4, f, 0.02 * row[0])  # noqa: B023, E731
            assert abs(below[i, j] - integrals.expectation(p, mean, 1.0, (y[j],))) < 2e-5


def test_steps_of_any_width():
    mean, sd = jnp.array([0.0, 0.0, -2.0]), jnp.array([1.0, 2.0, 0.5])
    for width in (1e-8, 1e-3, 1.0, 1e3):
        step = lambda f, s=width: jax.scipy.special.ndtr((f - 0.4) / s)  # noqa: E731
        exact = stats.norm.cdf((mean - 0.4) / np.hypot(sd, width))
        np.testing.assert_allclose(step_expectation(step, mean, sd), exact, atol=1e-5)


def test_ranks_are_not_promoted():
    rows = jnp.zeros(2)
    log_p = lambda f: -jnp.abs(f - 0.4)  # noqa: E731
    with jax.numpy_rank_promotion("raise"):
        for function in (log_expectation, lambda *a: expectation(*a, 20), step_expectation):
            assert jax.eval_shape(lambda m, s, f=function: f(log_p, m, s), rows, rows).shape == (2,)
