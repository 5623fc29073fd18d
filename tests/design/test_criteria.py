"""Criteria against quadrature over f, and against dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dgp_ppl import design

MEANS = np.array([[0.3, -1.0, 2.0], [0.1, 0.0, 1.0], [-0.5, 1.0, 3.0]])  # three passes
VARIANCES = np.array([[0.5, 1.0, 0.1], [0.2, 2.0, 0.3], [1.0, 0.7, 0.2]])
F = np.linspace(-15, 15, 20001)


def expected(function):
    """E[function(f)] at each input, by quadrature."""
    density = norm.pdf(F[:, None, None], MEANS, np.sqrt(VARIANCES)).mean(axis=1)
    return np.trapezoid(function(F)[:, None] * density, F, axis=0)


@pytest.mark.parametrize("best", [0.2, -2.0])
def test_expected_improvement_is_an_integral(x64, best):
    wanted = expected(lambda f: np.maximum(best - f, 0.0))
    found = jax.jit(design.expected_improvement)(MEANS, VARIANCES, best)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    found = jax.jit(design.log_expected_improvement)(MEANS, VARIANCES, best)
    np.testing.assert_allclose(found, np.log(wanted), atol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
def test_log_improvement_and_its_slope_are_exact_in_the_tail(wide):
    """The gain is an integral of u φ(z - u), and its slope one of φ(z - u)."""
    error, options = 1e-8 if wide else 2e-5, {"epsabs": 0, "epsrel": 1e-12, "limit": 500}
    with jax.enable_x64(wide):
        one = jnp.ones((1, 1))
        log_ei = lambda m: design.log_expected_improvement(m * one, one, 0.0)[0]  # noqa: E731
        log_ei = jax.jit(jax.value_and_grad(log_ei))
        for z in (2.0, -3.99, -4.01, -10.0, -1e3):
            width = 1 / max(1.0, -z)
            at = lambda u: np.exp(z * u * width - 0.5 * np.square(u * width))  # noqa: B023, E731
            gain = width**2 * quad(lambda u: u * at(u), 0, 60, **options)[0]  # noqa: B023
            slope = width * quad(at, 0, 60, **options)[0] / gain
            value, found = log_ei(jnp.asarray(-z))
            np.testing.assert_allclose(value, norm.logpdf(z) + np.log(gain), rtol=error)
            np.testing.assert_allclose(-found, slope, rtol=error)


def test_entropy_of_a_contour_is_that_of_a_coin(x64):
    p = expected(lambda f: f > 0.4)
    found = jax.jit(design.contour_entropy)(MEANS, VARIANCES, 0.4)
    np.testing.assert_allclose(found, -p * np.log(p) - (1 - p) * np.log(1 - p), atol=1e-3)


def test_global_improvement_is_a_variance(x64):
    nearest = np.array([0.5, -1.0, 2.0])
    wanted = []
    for i, a in enumerate(nearest):
        first, second = (expected(lambda f, n=n, a=a: (f - a) ** n)[i] for n in (2, 4))
        wanted.append(second - first**2)
    np.testing.assert_allclose(
        design.global_improvement(MEANS, VARIANCES, nearest), wanted, rtol=1e-6
    )


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_variance_reduction_is_that_of_a_run(x64, noise):
    """Of the variances with and without a run, within five standard errors of the draws."""
    rng = np.random.default_rng(0)
    x = np.array([0.0, 0.3, 1.0, 1.5])
    K = np.exp(-0.5 * np.square(x[:, None] - x)) + 1e-6 * np.eye(4)
    wanted = []
    for i in range(4):
        after = K - np.outer(K[:, i], K[i]) / (K[i, i] + noise)
        wanted.append(np.mean(np.diag(K) - np.diag(after)))
    f = rng.standard_normal((20, 1000, 4)) @ np.linalg.cholesky(K).T
    parts = np.array([design.variance_reduction(a, a, noise) for a in f])
    found = design.variance_reduction(f.reshape(-1, 4), f.reshape(-1, 4), noise)
    errors = parts.std(axis=0) / np.sqrt(len(parts))
    assert (abs(found - np.array(wanted)) < 5 * errors + 1e-4).all()
