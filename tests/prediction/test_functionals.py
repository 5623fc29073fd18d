import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import ndtr
from scipy import stats
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.prediction import _functionals


def test_quantiles_take_few_evaluations():
    """One evaluation of a mixture's distribution function can be expensive."""
    levels = np.array([1e-3, 0.05, 0.3, 0.5, 0.9, 0.95, 0.999], np.float32)
    guess = stats.norm.ppf(levels).astype(np.float32)
    around, above_0 = (guess - 1, guess + 1), (guess * 0, np.abs(guess) + 2)
    for cdf, exact, ends, max_steps in (
        (ndtr, stats.norm, around, 8),
        (dist.StudentT(3.0).cdf, stats.t(3), around, 20),
        (dist.Cauchy().cdf, stats.cauchy, around, 40),
        (dist.Exponential().cdf, stats.expon, above_0, 30),
    ):
        lower, upper, steps = _functionals._invert(
            cdf, jnp.asarray(levels), *map(jnp.asarray, ends), jnp.full(7, 1e-6), False
        )
        assert steps <= max_steps
        np.testing.assert_allclose(0.5 * (lower + upper), exact.ppf(levels), rtol=2e-4, atol=1e-5)
        assert (upper >= lower).all()


def test_moments_of_a_likelihood_without_any_come_from_draws():
    """NumPyro raised an error without words."""

    def half(f):
        return dist.LeftTruncatedDistribution(dist.Laplace(0 * f, 1.0), low=0.0)

    def model(x):
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), x[:2])(x)
        numpyro.sample("y", dgp.observe(f, half))

    p = dgp.predict(KEY, model, None, {}, np.linspace(-1, 1, 4)[:, None], num_samples=3)
    words = "no mean or variance of this likelihood: .* 4,000 draws; standard errors"
    with pytest.warns(UserWarning, match=words):
        mean = p.mean
    np.testing.assert_allclose(mean, 1.0, atol=0.08)  # half of a Laplace is an exponential
    np.testing.assert_allclose(p.var, 1.0, atol=0.35)
