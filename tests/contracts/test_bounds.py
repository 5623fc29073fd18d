"""Relations between the exact evidence, the bounds of SGPR and SVGP, and a deep bound."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from support.helpers import (
    KEY,
    assert_mean,
    bound,
    exact_evidence,
    hidden_nodes,
    layer_moments,
    no_guide,
    regression,
    slow,
    spread,
    squared_exponential,
    two_layer_params,
)
from support.objectives import NOISE, hyperparameters, kls

import dgp_ppl as dgp
from dgp_ppl.linalg import default_jitter
from dgp_ppl.models import deep_gp, optimal_inducing, sgpr, svgp

pytestmark = pytest.mark.usefixtures("x64")


GUIDE = dgp.MeanField(svgp)


@jax.jit
def bounds(z, x, y):
    """Return SGPR's bound, SVGP's bound at the optimal q(v), and the params with that q(v)."""
    params = optimal_inducing(hyperparameters(z), x, y)
    return (
        bound(sgpr, no_guide, hyperparameters(z), x, y, z=z),
        bound(svgp, GUIDE, params, x, y, z=z),
        params,
    )


def test_with_all_inputs_inducing_the_bounds_are_the_evidence():
    """With Z = X both bounds are exact up to the jitter.

    The jitter is less than 1e-10 of the variance. Its effect is summed over 20 rows and divided by
    2 s².
    """
    x, y = regression()
    evidence = exact_evidence(x, y)
    for value in bounds(x, x, y)[:2]:
        assert value == pytest.approx(evidence, abs=1e-6)
        assert value < evidence + 1e-9


def test_svgp_at_its_optimum_is_sgpr_and_below_the_evidence():
    x, y = regression()
    collapsed, optimal, _ = bounds(spread(8), x, y)
    assert optimal == pytest.approx(float(collapsed), rel=1e-9)
    assert collapsed < exact_evidence(x, y)


def test_a_bound_as_another_implementation_has_it():
    """Of four inducing inputs, far below the log evidence; the other jitter is 1e-7."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-2, 2, 30))
    y = jnp.asarray(np.sin(3 * x) + 0.2 * rng.standard_normal(30))
    z = jnp.asarray(x[np.linspace(0, 29, 4).astype(int)])[:, None]
    given = {"l1.z": z, "l1.variance": 1.2, "l1.lengthscale": jnp.array([0.7]), "noise": 0.2}
    x = jnp.asarray(x)[:, None]
    evidence = exact_evidence(x, y, 0.2, variance=1.2, lengthscale=0.7)
    assert evidence == pytest.approx(-8.620731, abs=5e-7)
    assert float(bound(sgpr, no_guide, given, x, y, z=z)) == pytest.approx(-101.278919, abs=3e-6)


def test_sgpr_and_svgp_share_their_gradient_at_the_optimum():
    """Check the envelope theorem: d/dtheta max_q SVGP = d/dtheta SVGP at the optimal q."""
    x, y = regression()
    z = spread(6)
    start = hyperparameters(z)
    q = {n: a for n, a in bounds(z, x, y)[2].items() if n not in start}

    @jax.jit
    def gradients(params):
        return (
            jax.grad(lambda p: bound(sgpr, no_guide, p, x, y, z=z))(params),
            jax.grad(lambda p: bound(svgp, GUIDE, p | q, x, y, z=z))(params),
        )

    collapsed, uncollapsed = gradients(start)
    for name in start:
        np.testing.assert_allclose(uncollapsed[name], collapsed[name], rtol=1e-5, atol=1e-5)


def test_one_layer_of_a_deep_gp_is_svgp():
    x, y = regression()
    z = spread(8)
    _, optimal, params = bounds(z, x, y)
    deep = bound(deep_gp, dgp.MeanField(deep_gp), params, x, y, z=(z,))
    assert deep == pytest.approx(float(optimal), rel=1e-12)


def test_whitened_is_unwhitened():
    """In NumPy, where u = L v, q(u) = N(L m, L S L') and the prior is N(0, K)."""
    x, y = regression()
    z = spread(6)
    rng = np.random.default_rng(0)
    m, R = rng.standard_normal(6), np.tril(rng.standard_normal((6, 6)), -1) + 0.7 * np.eye(6)
    params = hyperparameters(z) | {"l1.v.loc": m[:, None], "l1.v.scale_tril": R[None]}
    whitened = bound(svgp, GUIDE, jax.tree.map(jnp.asarray, params), x, y, z=z)

    jitter = default_jitter(np.float64) * 1.5
    K, Kzx = squared_exponential(z, z) + jitter * np.eye(6), squared_exponential(z, x)
    L, alpha = np.linalg.cholesky(K), np.linalg.solve(K, Kzx)
    mean, S = L @ m, L @ R @ R.T @ L.T
    f_mean, f_var = alpha.T @ mean, 1.5 - np.sum(alpha * ((K - S) @ alpha), axis=0)
    expected = stats.norm(f_mean, NOISE).logpdf(y) - f_var / (2 * NOISE**2)
    kl = 0.5 * (
        np.trace(np.linalg.solve(K, S))
        + mean @ np.linalg.solve(K, mean)
        - 6
        + np.linalg.slogdet(K)[1]
        - np.linalg.slogdet(S)[1]
    )
    assert whitened == pytest.approx(expected.sum() - kl, rel=1e-7)


def test_float32_agrees_with_float64():
    x, y = regression()
    double = bounds(spread(8), x, y)[0]
    with jax.enable_x64(False):
        single = bounds(jnp.float32(spread(8)), jnp.float32(x), jnp.float32(y))
    assert single[0].dtype == jnp.float32
    np.testing.assert_allclose(single[:2], [double, double], atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("lengthscale", "noise"), [slow(0.5, 0.1), slow(1.0, 0.01), (1.0, 1e-3)])
def test_float32_gives_no_higher_collapsed_bound(lengthscale, noise):
    """Rounding raises the bound by at most a hundredth of a nat per datum.

    The Gram matrix of 50 inducing inputs on a line is numerically singular.
    """
    x = np.linspace(-2, 2, 400)[:, None]
    y = np.sin(3 * x[:, 0]) + noise * np.random.default_rng(0).normal(size=400)
    z = np.linspace(-2, 2, 50)[:, None]
    params = {"l1.variance": 1.0, "l1.lengthscale": np.array([lengthscale]), "noise": noise}

    def bound(dtype):
        a, b, c = (jnp.asarray(v, dtype) for v in (x, y, z))
        model = handlers.substitute(partial(sgpr, a, b, z=c), data={**params, "l1.z": c})
        return float(log_density(model, (), {}, {})[0]) / 400

    double = bound(jnp.float64)
    with jax.enable_x64(False):
        single = bound(jnp.float32)
    assert single < double + 0.01


def expected_log_likelihood(params, h, y):
    mean, var = layer_moments(params, 2, h[:, None])
    return stats.norm(mean, NOISE).logpdf(y) - var / (2 * NOISE**2)


def deep_bound(params, x, y, keys):
    z = (spread(5), spread(5))
    return bound(deep_gp, dgp.MeanField(deep_gp), params, x, y, keys=keys, z=z)


def test_the_mean_of_deep_bounds_is_the_doubly_stochastic_bound():
    """Compare with Gauss-Hermite quadrature over each row's hidden value, in NumPy."""
    x, y = regression(rows=8)
    params = two_layer_params(variance=0.5)
    total = -kls(params)
    for weight, h in hidden_nodes(params, x):
        total += weight * expected_log_likelihood(params, h, np.asarray(y)).sum()
    assert_mean(deep_bound(params, x, y, random.split(KEY, 4000)), total)


def test_a_hidden_layer_without_variance_is_the_identity():
    x, y = regression(rows=8)
    params = two_layer_params(variance=1e-14)
    value = deep_bound(params, x, y, KEY)
    one = expected_log_likelihood(params, np.asarray(x)[:, 0], np.asarray(y)).sum()
    assert value == pytest.approx(one - kls(params), rel=1e-5)
