"""Small data, small models, exact results, and assertions for Monte Carlo estimates."""

import logging
import re

import jax
import jax.flatten_util
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import TraceMeanField_ELBO
from scipy import stats

import dgp_ppl as dgp
from dgp_ppl import kernels, means
from dgp_ppl.linalg import default_jitter


def slow(*values):
    """Mark a case of a test as slow; CI and `make test-slow` run it."""
    return pytest.param(*values, marks=pytest.mark.slow)


KEY = random.key(0)


def regression(seed=0, rows=20, dim=1):
    """Return inputs on [-2, 2], [N, D], and a noisy sine of their sum, [N]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, dim))
    y = np.sin(2 * x.sum(axis=1)) + 0.2 * rng.standard_normal(rows)
    return jax.numpy.asarray(x, float), jax.numpy.asarray(y, float)


def two_layers(x, y=None, *, z, batch_size=None):
    """The ten-line model of the README."""
    d = x.shape[-1]
    noise = numpyro.param("noise", 0.1, constraint=dist.constraints.positive)
    z1, z2 = numpyro.param("l1.z", z), numpyro.param("l2.z", z)
    k1 = kernels.SquaredExponential.learned("l1", d)
    f1 = dgp.gp("l1", k1, z1, out=d, mean=means.identity)
    f2 = dgp.gp("l2", kernels.Matern52.learned("l2", d), z2)
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)


def one_layer(x, y=None, *, z, likelihood=lambda f: dist.Normal(f, 0.3), batch_size=None):
    """A GP with fixed hyperparameters; its exact posterior is known if z = x."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), z)
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), likelihood), obs=y)


def squared_exponential(a, b, variance=1.5, lengthscale=0.8):
    """Return the Gram matrix of `one_layer`'s kernel in NumPy, [N, M]."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    square = (((a[:, None, :] - b[None, :, :]) / lengthscale) ** 2).sum(axis=-1)
    return variance * np.exp(-0.5 * square)


def exact_posterior(x, y, x_test, noise=0.3):
    """Return mean and covariance of f(x_test) given y, for the GP of `one_layer`."""
    K = squared_exponential(x, x) + noise**2 * np.eye(len(x))
    cross = squared_exponential(x, x_test)
    mean = cross.T @ np.linalg.solve(K, np.asarray(y, np.float64))
    return mean, squared_exponential(x_test, x_test) - cross.T @ np.linalg.solve(K, cross)


def exact_evidence(x, y, noise=0.3, **kernel):
    """Return log p(y) of the GP of `one_layer`, by a dense Cholesky factorisation."""
    K = squared_exponential(x, x, **kernel) + noise**2 * np.eye(len(x))
    return stats.multivariate_normal(np.zeros(len(x)), K).logpdf(np.asarray(y, np.float64))


def collapsed_bound(x, y, z, noise=0.3):
    """Return the bound of the best q(v) of `one_layer`: log N(y; Q + s² I) - tr(K - Q) / (2 s²)."""
    cross = squared_exponential(z, x)
    Q = cross.T @ np.linalg.solve(squared_exponential(z, z), cross)
    marginal = stats.multivariate_normal(np.zeros(len(x)), Q + noise**2 * np.eye(len(x)))
    return marginal.logpdf(np.asarray(y, float)) - (1.5 * len(x) - np.trace(Q)) / (2 * noise**2)


def bound(model, guide, params, *args, keys=KEY, **kwargs):
    """Return the bound of `TraceMeanField_ELBO`: a scalar, or [S] for keys [S]."""

    def one(key, params):
        return -TraceMeanField_ELBO().loss(key, params, model, guide, *args, **kwargs)

    return jax.jit(one if keys.ndim == 0 else jax.vmap(one, (0, None)))(keys, params)


def no_guide(*args, **kwargs):
    """A guide for models without latent sites."""


def start(model, guide, *args, **kwargs):
    """Return the initial params of a model and its guide."""
    from numpyro.infer import SVI

    svi = SVI(model, guide, numpyro.optim.Adam(0.01), TraceMeanField_ELBO())
    return svi.get_params(jax.jit(lambda key: svi.init(key, *args, **kwargs))(KEY))


def spread(M):
    """Return M inputs that are evenly spaced on [-2, 2], [M, 1]."""
    return jax.numpy.linspace(-2, 2, M)[:, None]


def two_layer_params(variance=0.5):
    """Return params of `models.deep_gp` with z = 2 * (spread(5),), none at its initial value."""
    rng = np.random.default_rng(1)
    params = {"noise": 0.3}
    for l in (1, 2):
        R = 0.3 * np.tril(rng.standard_normal((5, 5)), -1) + 0.6 * np.eye(5)
        params |= {f"l{l}.z": spread(5), f"l{l}.lengthscale": np.array([0.8])}
        params |= {f"l{l}.variance": 1.5, f"l{l}.v.loc": rng.standard_normal((5, 1))}
        params |= {f"l{l}.v.scale_tril": R[None]}
    return {n: jax.numpy.asarray(a, float) for n, a in (params | {"l1.variance": variance}).items()}


def layer_moments(params, l, x):
    """Return mean and variance at x [N, 1] of layer l without its mean function, in NumPy."""
    p = {n[3:]: np.asarray(a, float) for n, a in params.items() if n.startswith(f"l{l}.")}
    variance = float(p["variance"])
    jitter = default_jitter(params["noise"].dtype) * variance * np.eye(5)
    L = np.linalg.cholesky(squared_exponential(p["z"], p["z"], variance) + jitter)
    A = np.linalg.solve(L, squared_exponential(p["z"], x, variance))
    extra = (A.T @ p["v.scale_tril"][0]) ** 2
    return A.T @ p["v.loc"][:, 0], variance - (A**2).sum(axis=0) + extra.sum(axis=1)


def hidden_nodes(params, x, num=100):
    """Yield Gauss-Hermite weights and the hidden values of all rows, [N], at their nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(num)
    mean, var = layer_moments(params, 1, np.asarray(x))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        # The mean function is the identity.
        yield weight, np.asarray(x)[:, 0] + mean + np.sqrt(var) * node


def assert_mean(draws, truth, errors=4.5):
    """Assert that the mean of draws [S, ...] is within `errors` standard errors of the truth."""
    draws = np.asarray(draws, np.float64)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.isfinite(draws).all()
    gap = np.abs(draws.mean(axis=0) - np.asarray(truth, np.float64))
    assert (gap <= errors * error + 1e-6).all(), f"{np.nanmax(gap / error):.1f} standard errors"


def assert_covariance(draws, truth, errors=4.5):
    """Assert the same of the covariance of draws [S, N], with the truth [N, N]."""
    draws = np.asarray(draws, np.float64)
    centred = draws - draws.mean(axis=0)
    assert_mean(centred[:, :, None] * centred[:, None, :], truth, errors)


def assert_errors(cases):
    """Assert that calls raise errors whose types and texts, ``TypeError: fit: ...``, match."""
    wrong = []
    for call, pattern in cases:
        try:
            got = f"no error: {call()}"
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
        if not re.search(pattern, got):
            wrong.append(f"wanted {pattern}\n    got {got}")
    assert not wrong, "\n".join(wrong)


def assert_derivatives(function, *args, second=False, rtol=1e-6):
    """Compare derivatives of a scalar function with central differences, in both modes.

    The derivative is along a random direction u. With `second` the product of the Hessian and u is
    compared too. Needs float64.
    """
    x, unravel = jax.flatten_util.ravel_pytree(args)
    assert x.dtype == jax.numpy.float64
    u = jax.numpy.asarray(np.random.default_rng(1).standard_normal(x.size))
    h = 1e-5

    @jax.jit
    def compare(x):
        f = lambda x: function(*unravel(x))  # noqa: E731
        gradient = jax.grad(f)
        pairs = [
            (jax.jvp(f, (x,), (u,))[1], (f(x + h * u) - f(x - h * u)) / (2 * h)),
            (gradient(x) @ u, (f(x + h * u) - f(x - h * u)) / (2 * h)),
        ]
        if second:
            along = jax.jvp(gradient, (x,), (u,))[1]
            pairs.append((along, (gradient(x + h * u) - gradient(x - h * u)) / (2 * h)))
        return pairs

    for value, difference in compare(x):
        scale = np.abs(difference).max()
        np.testing.assert_allclose(value, difference, rtol=rtol, atol=rtol * scale)


def compiled(caplog, run):
    """Return the names of the programs that a function compiles."""
    caplog.clear()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        run()
    return [r.getMessage().split()[1] for r in caplog.records if r.msg.startswith("Compiling")]
