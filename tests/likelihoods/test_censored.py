"""`CensoredNormal` against SciPy, draws and integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support import integrals
from support.helpers import KEY, assert_mean

from dgp_ppl import likelihoods

LOC, LOW, HIGH = jnp.array([-2.0, 0.1, 0.6, 3.0]), -0.5, 1.0


@pytest.mark.parametrize("ends", [(LOW, HIGH), (-jnp.inf, HIGH)])
def test_censored_readings(ends):
    censored = likelihoods.CensoredNormal(LOC, 0.7, *ends)
    draws = np.asarray(censored.sample(KEY, (100_000,)), np.float64)
    assert draws.min() >= ends[0]
    assert draws.max() <= ends[1]
    assert_mean(draws, censored.mean)
    assert_mean(np.square(draws - np.asarray(censored.mean)), censored.variance)
    for value in (-0.5, 0.2, 1.0):
        assert_mean(draws <= value, censored.cdf(jnp.full(4, value)))
    normal = stats.norm(np.asarray(LOC), 0.7)
    inside = censored.log_prob(jnp.full(4, 0.3))
    np.testing.assert_allclose(inside, normal.logpdf(0.3), rtol=1e-4)
    for end, mass in ((ends[0], normal.logcdf), (ends[1], normal.logsf)):
        if np.isfinite(end):
            np.testing.assert_allclose(censored.log_prob(jnp.full(4, end)), mass(end), rtol=1e-3)


def test_censored_readings_far_beyond():
    def total(loc, scale):
        y = jnp.array([1.0, 1.0, 0.5])
        return likelihoods.CensoredNormal(loc, scale, high=1.0).log_prob(y).sum()

    both = jax.jit(jax.value_and_grad(total, (0, 1)))
    value, slopes = both(jnp.array([-60.0, 60.0, 60.0]), jnp.ones(3))
    assert np.isfinite([value, *np.ravel(slopes)]).all()


def test_moments_of_a_censored_normal_do_not_cancel():
    loc = jnp.array([-3.0, -0.4, 0.6])

    @jax.jit
    def moments(scale):
        distribution = likelihoods.CensoredNormal(loc, scale, low=-0.5, high=0.7)
        return distribution.mean, distribution.variance

    value = lambda f: np.clip(f, -0.5, 0.7)  # noqa: E731
    for scale in (1e-3, 1.0, 1e6):
        found = moments(scale)
        for i, mean in enumerate(np.asarray(loc, float)):
            integral = lambda g: integrals.expectation(g, mean, scale, (-0.5, 0.7))  # noqa: B023, E731
            first = integral(value)
            second = integral(lambda f: (value(f) - first) ** 2)  # noqa: B023
            assert found[0][i] == pytest.approx(first, abs=1e-4), (scale, mean)
            assert found[1][i] == pytest.approx(second, rel=2e-3, abs=1e-9), (scale, mean)


def test_ends_out_of_order_or_of_another_shape():
    order = r"CensoredNormal: low is .* wanted numbers with low below"
    shapes = r"CensoredNormal: .* shapes \[\(4,\), \(\), .*, \(3,\)\]"
    for low, high, words in (
        (1.0, -1.0, order), (0.0, 0.0, order), (np.nan, 1.0, order), (-np.inf, np.ones(3), shapes)
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            likelihoods.CensoredNormal(LOC, 0.7, low, high)
