"""Student t noise: its params, and what it gains where targets have outliers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from scipy import stats
from support import integrals
from support.helpers import KEY, assert_mean, slow

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import StudentT


def test_it_is_the_students_t_of_its_params():
    f, y = jnp.linspace(-1, 1, 5), np.linspace(-3, 3, 5)
    with handlers.substitute(data={"noise": 0.4, "df": 3.5}):
        found = likelihoods.student_t(f)
    np.testing.assert_allclose(
        found.log_prob(y), stats.t(3.5, f, 0.4).logpdf(y), rtol=1e-5, atol=2e-6
    )
    np.testing.assert_allclose(found.variance, stats.t(3.5, f, 0.4).var(), rtol=1e-5)
    # The degrees of freedom leave a variance.
    trace = handlers.trace(lambda: likelihoods.student_t(jnp.zeros(2))).get_trace()
    constraint = trace["df"]["kwargs"]["constraint"]
    assert not constraint(2.0)
    assert constraint(2.001)
    assert numpyro.distributions.biject_to(constraint)(-50.0) >= 2


def rows(df, mean):
    """Return means, variances, scales and targets: widths of 1e-3 to 1e3 sd, and far outliers."""
    found = []
    for sd in (1e-6, 1.0, 1e3):
        for ratio in (1e-3, 0.1, 1.0, 1e3):
            for away in (0.0, 0.4, 3.0, 30.0):
                found += [
                    (mean, sd**2, sd * ratio, mean + away * unit) for unit in (sd, sd * ratio)
                ]
    return np.array(found[:: 1 if df == 4 else 9]).T


def against_integrals(df, tolerance, mean):
    """Compare densities, bounds and distribution functions with adaptive quadrature."""
    mean, var, scale, y = rows(df, mean)

    @jax.jit
    def ours(mean, var, scale, y):
        density, bound = (
            dgp.observe(
                Marginals(mean[:, None], var[:, None], g), lambda f: StudentT(df, f, scale)
            ).log_prob(y)
            for g in (False, True)
        )
        return density, bound, StudentT(df, mean, scale).predictive(var).cdf(y)

    density, bound, below = ours(*map(jnp.asarray, (mean, var, scale, y)))
    for i, (m, v, s, target) in enumerate(zip(mean, var, scale, y, strict=True)):
        log_p = lambda f, y=target, s=s: stats.t.logpdf(y, df, f, s)  # noqa: E731
        wanted = integrals.log_expectation(log_p, m, v**0.5, (target,))
        assert abs(density[i] - wanted) < tolerance * max(1, abs(wanted)), (m, v, s, target)
        wanted = integrals.expectation(log_p, m, v**0.5, (target,))
        assert abs(bound[i] - wanted) < tolerance * max(1, abs(wanted)), (m, v, s, target)
        cdf = lambda f, y=target, s=s: stats.t.cdf(y, df, f, s)  # noqa: E731
        wanted = integrals.expectation(cdf, m, v**0.5, (target,))
        assert abs(below[i] - wanted) < max(tolerance, 1e-6), (m, v, s, target)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("some", [(2.1, 20.0), slow((4.0, 300.0, 1e4))])
def test_expectations_are_the_integrals(some):
    for df in some:
        against_integrals(df, 3e-6, mean=0.5)


@pytest.mark.slow
def test_expectations_in_float32():
    for df in (2.1, 4.0, 20.0, 1e4):
        against_integrals(df, 1e-5, mean=0.0)  # float32 has no 0.5 + 1e-9


@pytest.mark.usefixtures("x64")
def test_the_bound_of_noise_a_million_times_narrower_than_f():
    for df in (0.5, 2.1, 4.0):
        likelihood = StudentT(df, jnp.array([0.0]), 1e-3)
        found = likelihood.expected_log_prob(jnp.array([1e6]), jnp.array([500.0]), 20)[0]
        log_p = lambda f, df=df: stats.t.logpdf(500.0, df, f, 1e-3)  # noqa: E731
        assert found == pytest.approx(integrals.expectation(log_p, 0.0, 1e3, (500.0,)), rel=1e-5)


@pytest.mark.parametrize("name", [slow("density"), "bound"])
def test_gradients_are_finite(name):
    """In float32, where f has no variance and where y is 1e6 scales away, too."""

    def value(mean, var, log_scale, df):
        marginals = Marginals(mean[:, None], var[:, None], name == "bound")
        noisy = dgp.observe(marginals, lambda f: StudentT(df, f, jnp.exp(log_scale)))
        return noisy.log_prob(jnp.zeros(6)).sum()

    mean = jnp.array([0.0, 0.0, 1e3, 1e3, 1.0, -30.0])
    var = jnp.array([0.0, 1e-12, 0.0, 1e-3, 1e6, 1.0])
    gradient = jax.jit(jax.grad(value, argnums=(0, 1, 2, 3)))
    for df in (2.01, 5.0, 1e4):
        gradients = gradient(mean, var, -7.0, df)
        assert all(np.isfinite(g).all() for g in gradients)


def test_moments_and_draws_of_the_predictive():
    levels = jnp.array([[-2.0], [0.9], [2.0]])

    @jax.jit
    def run():
        p = StudentT(5.0, jnp.array([1.0, -2.0]), 0.5).predictive(jnp.array([0.3, 0.01]))
        return p.variance, p.sample(KEY, (20_000,))[:, 0], jax.vmap(p.cdf)(levels + jnp.zeros(2))

    variance, draws, below = run()
    np.testing.assert_allclose(variance, [0.3 + 0.25 * 5 / 3, 0.01 + 0.25 * 5 / 3], rtol=1e-6)
    assert_mean(draws, 1.0)
    assert_mean((draws < levels).T, below[:, 0])
