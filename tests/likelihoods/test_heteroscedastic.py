"""`HeteroscedasticNormal`: its closed form, its predictive density, and its use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support import integrals
from support.helpers import KEY, assert_mean, slow

from dgp_ppl.likelihoods import HeteroscedasticNormal

SCALE = 0.3
# Mean and variance of f1, mean and variance of f2, and y.
GRID = [
    (m1, v1, m2, v2, y)
    for m1, y in ((0.0, 0.1), (2.0, -1.5), (-30.0, -29.0), (0.0, 300.0))
    for v1 in (1e-12, 1e-2, 1.0, 1e6)
    for m2 in (-4.0, 0.0, 3.0)
    for v2 in (1e-12, 1e-2, 1.0, 4.0)
]


def observed(m1, v1, m2, v2):
    latent = jnp.array([[m1, m2]])
    return HeteroscedasticNormal(latent, SCALE), jnp.array([[v1, v2]])


@pytest.mark.parametrize("stride", [13, slow(1)])
def test_expectations_are_integrals(x64, stride):
    """Compare the bound and the predictive density with adaptive quadrature."""

    @jax.jit
    def ours(likelihood, var, y):
        expected = likelihood.expected_log_prob(var, y, 20)
        return expected[0], likelihood.predictive(var).log_prob(y)[0]

    for m1, v1, m2, v2, y in GRID[::stride]:
        likelihood, var = observed(m1, v1, m2, v2)

        def given(g, m1=m1, v1=v1, y=y):  # the expectation over f1 has a closed form
            log_p = stats.norm(m1, SCALE * np.exp(g)).logpdf(y)
            return log_p - 0.5 * v1 * np.exp(-2 * g) / SCALE**2

        def log_given(g, m1=m1, v1=v1, y=y):
            return stats.norm.logpdf(y, m1, np.sqrt(v1 + SCALE**2 * np.exp(2 * g)))

        found, log_p = ours(likelihood, var, jnp.array([y]))
        peak = m2 - 2 * v2  # of the precision times the density of f2
        wanted = integrals.expectation(given, m2, np.sqrt(v2), (peak,))
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)
        at = np.log(max(abs(y - m1), 1e-3) / SCALE)  # where the noise explains y
        wanted = integrals.log_expectation(log_given, m2, np.sqrt(v2), (at,))
        assert log_p == pytest.approx(wanted, abs=1e-3), (m1, v1, m2, v2, y)


def test_gradients_of_the_bound_are_finite_in_float32():
    def bound(g, variance):
        var = jnp.full((1, 2), variance)
        likelihood = HeteroscedasticNormal(jnp.array([[0.0, g]]))
        return likelihood.expected_log_prob(var, jnp.array([0.5]), 20)[0]

    logs, variances = jnp.array([-100.0, -15.0, 0.0, 15.0, 80.0]), jnp.array([1e-12, 1.0, 1e6])
    each = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(bound), (0, None)), (None, 0)))
    for found in each(logs, variances):
        assert np.isfinite(found).all()


def test_where_the_noise_is_known_the_density_is_a_gaussian():
    """In float32, with finite gradients."""
    y, latent = jnp.array([0.1, 3.0, 300.0]), jnp.array([[0.0, -0.5]] * 3)
    wanted = stats.norm(0, np.sqrt(0.04 + (SCALE * np.exp(-0.5)) ** 2)).logpdf(y)

    @jax.jit
    def densities_and_gradients(latent, var):
        density = lambda *a: HeteroscedasticNormal(a[0], SCALE).predictive(a[1]).log_prob(y)  # noqa: E731
        return density(latent, var), jax.grad(lambda *a: density(*a).sum(), (0, 1))(latent, var)

    for sd in (0.0, 1e-18, 1e-12, 1e-6):
        found, gradients = densities_and_gradients(latent, jnp.array([[0.04, sd**2]] * 3))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=str(sd))
        assert all(np.isfinite(g).all() for g in gradients), sd


def test_moments_draws_and_the_distribution_function(x64):
    likelihood, var = observed(1.0, 0.5, -0.2, 0.3)
    predictive = likelihood.predictive(var)
    variance = 0.5 + SCALE**2 * np.exp(-0.4 + 2 * 0.3)
    assert predictive.mean[0] == pytest.approx(1.0)
    assert predictive.variance[0] == pytest.approx(variance, rel=1e-6)
    draws = np.asarray(predictive.sample(KEY, (20_000,)))[:, 0]
    assert_mean(draws, 1.0)
    assert_mean((draws - 1.0) ** 2, variance)
    assert_mean((draws < 1.5) * 1.0, float(predictive.cdf(jnp.array(1.5))[0]))
    given = np.asarray(likelihood.sample(KEY, (20_000,)))[:, 0]
    assert_mean((given - 1.0) ** 2, float(likelihood.variance[0]))
