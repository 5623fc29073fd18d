"""A conjugate model: one GP layer with an exactly known posterior."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp
from dgp_ppl import kernels

KEY = random.key(0)
N, NOISE = 30, 0.8
X = np.linspace(-3, 3, N)[:, None]
KERNEL = kernels.SquaredExponential(1.0, 1.2)


def conjugate(x, y=None):
    """One layer with inducing inputs at the data, so that f given y is an exact GP posterior."""
    f = dgp.gp("l1", KERNEL, jnp.asarray(X, float))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, NOISE)), obs=y)


def gram():
    K = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)), np.float64)
    return K + 1e-6 * np.eye(N)


def target():
    rng = np.random.default_rng(1)
    return np.linalg.cholesky(gram()) @ rng.normal(size=N) + NOISE * rng.normal(size=N)


Y = target()


def posterior():
    """Return mean and covariance of v given y."""
    L = np.linalg.cholesky(gram())
    cov = np.linalg.inv(np.eye(N) + L.T @ L / NOISE**2)
    return cov @ L.T @ Y / NOISE**2, cov


def guide_params(loc, scale_tril):
    """Return params of `MeanField` with q(v) = N(loc, scale_tril scale_tril')."""
    return {
        "l1.v.loc": jnp.asarray(loc, jnp.float32)[:, None],
        "l1.v.scale_tril": jnp.asarray(scale_tril, jnp.float32)[None],
    }


def exact_loo():
    """Return log p(y_n | all other y), [N], and the mean and variance of y_n given all other y.

    Source: Rasmussen and Williams 2006, equations 5.10 to 5.12.
    """
    inverse = np.linalg.inv(gram() + NOISE**2 * np.eye(N))
    var = 1 / np.diag(inverse)
    mean = Y - var * (inverse @ Y)
    return -0.5 * np.log(2 * np.pi * var) - 0.5 * (Y - mean) ** 2 / var, (mean, var)


@functools.cache
def exact_tree():
    """Return a tree with 4000 draws of v from its posterior."""
    loc, cov = posterior()
    params = guide_params(loc, np.linalg.cholesky(cov))
    guide = dgp.MeanField(conjugate)
    return dgp.to_inferencedata(KEY, conjugate, guide, params, X, Y, num_samples=4000)
