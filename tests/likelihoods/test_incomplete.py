"""Incomplete gamma and beta functions of large arguments against SciPy's in float64."""

import jax
import numpy as np
import pytest
from scipy import special

from dgp_ppl.likelihoods._incomplete import incomplete_beta, incomplete_gamma

DEVIATIONS = np.array([-30, -8, -4, -2, -1, -0.3, 0, 0.3, 1, 2, 4, 8, 30])
FACTORS = np.array([1e-20, 1e-3, 0.1, 0.5, 0.8, 1.2, 2, 10, 1e3, 1e20])


def gamma_cases(dtype):
    a = (10.0 ** np.arange(0, 13, 0.25))[:, None].astype(dtype)
    x = np.concatenate([np.maximum(a + DEVIATIONS * np.sqrt(a), 0), a * FACTORS], axis=1)
    return np.broadcast_to(a, x.shape), x.astype(dtype)


def test_gamma_in_float32():
    a, x = gamma_cases(np.float32)
    expected = special.gammaincc(a.astype(float), x.astype(float))
    np.testing.assert_allclose(incomplete_gamma(a, x), expected, atol=5e-6)


@pytest.mark.slow
def test_gamma_in_float64(x64):
    a, x = gamma_cases(np.float64)
    np.testing.assert_allclose(incomplete_gamma(a, x), special.gammaincc(a, x), atol=1e-9)


def test_beta_in_float32():
    grids = (10.0 ** np.arange(-1, 10, 0.5), 10.0 ** np.arange(0, 10, 0.5))
    a, b = (v.ravel()[:, None].astype(np.float32) for v in np.meshgrid(*grids))
    share = a.astype(float) / (a.astype(float) + b)
    sd = np.sqrt(share * (1 - share) / (a + b + 1.0))
    x = np.concatenate([share + sd * DEVIATIONS, share * FACTORS], axis=1)
    x = np.where((x > 0) & (x < 1), x, 0.5)
    odds = (x / (1 - x)).astype(np.float32)
    expected = special.betainc(a.astype(float), b.astype(float), odds / (1 + odds.astype(float)))
    # The deviation of a normal tail has the rounding error of x: sqrt(a + b) times float32's.
    error = 1e-4 + 3e-8 * np.sqrt(a + b) * np.ones_like(odds)
    np.testing.assert_array_less(np.abs(incomplete_beta(a, b, odds) - expected), error)


@pytest.mark.parametrize(("a", "x"), [(1, 0), (1e6, 0), (1e6, 1e38), (100, np.inf), (5, np.inf)])
def test_derivatives_of_empty_tails_are_finite(a, x):
    a, x = np.float32(a), np.float32(x)
    assert np.isfinite(jax.grad(incomplete_gamma, argnums=1)(a, x))
