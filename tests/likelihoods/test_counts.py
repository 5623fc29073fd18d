"""Likelihoods of counts against SciPy, and NumPyro's with the rate itself."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY, assert_mean

from dgp_ppl.likelihoods import NegativeBinomialLog, PoissonLog

LOGS = np.linspace(-12, 6, 19)
KINDS = {
    "poisson": (PoissonLog, lambda f: stats.poisson(np.exp(f))),
    "negative_binomial": (
        lambda f: NegativeBinomialLog(f, 3.0),
        lambda f: stats.nbinom(3.0, 3.0 / (3.0 + np.exp(f))),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_densities_moments_and_draws(kind):
    make, scipys = KINDS[kind]
    ours, exact = make(jnp.asarray(LOGS)), scipys(LOGS)
    for y in (0, 1, 20, 500):
        np.testing.assert_allclose(ours.log_prob(y), exact.logpmf(y), rtol=2e-5, atol=5e-4)
        np.testing.assert_allclose(ours.cdf(jnp.full(19, y)), exact.cdf(y), atol=1e-4)
    np.testing.assert_allclose(ours.mean, exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(ours.variance, exact.var(), rtol=1e-5)
    some = make(jnp.array([-100.0, 0.5, 2.0]))
    draws = np.asarray(some.sample(KEY, (20_000,)), float)
    assert_mean(draws, some.mean)
    assert_mean(np.square(draws - np.asarray(some.mean)), some.variance)


@pytest.mark.parametrize("concentration", [None, 0.5, 3.0, 100.0, 1e5])
@pytest.mark.parametrize("mean", [1.0, 16.0, 100.0, 1e4, 1e6, 1e8])
def test_large_counts_keep_their_digits(mean, concentration):
    """NumPyro's densities of such counts are off by 0.5 to 100 nats in float32."""
    f = np.float32(np.log(mean))
    mean = np.exp(float(f))
    if concentration is None:
        ours, exact, sd = PoissonLog(f), stats.poisson(mean), mean**0.5
    else:
        ours = NegativeBinomialLog(f, concentration)
        exact = stats.nbinom(concentration, concentration / (concentration + mean))
        sd = (mean + mean**2 / concentration) ** 0.5
    y = np.floor(np.maximum(0, mean + np.array([-3, -1, 0, 1, 3]) * sd)).astype(np.float32)
    # f itself is rounded: to 1e-7 of its value, and log p changes by (y - mean) times that.
    error = 3e-6 * np.abs(y - mean) * min(1.0, (concentration or np.inf) / mean)
    np.testing.assert_array_less(np.abs(ours.log_prob(y) - exact.logpmf(y)), 5e-5 + error)
    np.testing.assert_allclose(ours.cdf(y), exact.cdf(y), atol=2e-3)
    assert ours.cdf(-1.0) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_pytree(kind):
    ours = KINDS[kind][0](jnp.array([-2.0, 0.5]))
    again = jax.jit(lambda d: d)(ours)
    np.testing.assert_array_equal(again.log_prob(3), ours.log_prob(3))
    np.testing.assert_array_equal(again.mean, ours.mean)


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [1e-2, 3.0, 100.0])
def test_the_concentration_has_a_gradient(concentration):
    """It is that of NumPyro's form, and finite where that one is not."""
    f, y = jnp.array([-100.0, -50.0, 0.3, 3.0, 80.0]), jnp.array([2, 0, 1, 40, 5])
    total = lambda make: jax.vmap(jax.grad(make, argnums=(0, 1)), (0, None, 0))  # noqa: E731
    ours = total(lambda f, c, y: NegativeBinomialLog(f, c).log_prob(y))(f, concentration, y)
    theirs = total(lambda f, c, y: dist.NegativeBinomial2(jnp.exp(f), c).log_prob(y))
    for a, b in zip(ours, theirs(f, concentration, y), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a[2:4], b[2:4], rtol=2e-3, atol=1e-3)
