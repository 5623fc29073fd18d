"""Linear-Gaussian models, whose evidence and best controls are known."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.tree_util import Partial

from dgp_ppl.inference.guides.diffusion._process import (
    VariancePreserving,
    last_step_cost,
    simulate_process,
)

CONSTANT = VariancePreserving(low=8.0, high=8.0)
RISING = VariancePreserving()


def linear_gaussian(seed, models=1, H=5, N=8):
    """Draw random regressions with w ~ N(0, I).

    Returns design, targets, noise, posterior mean and covariance, and log evidence. The first axis
    of each is the number of models.
    """
    rng = np.random.default_rng(seed)
    noise = np.exp(rng.uniform(np.log(0.2), np.log(2.0), (models, 1)))
    X = rng.standard_normal((models, N, H)) * np.exp(rng.standard_normal((models, 1, H)))
    w = 2 * rng.standard_normal((models, H, 1))
    return regression_posterior(
        X, (X @ w)[..., 0] + noise * rng.standard_normal((models, N)), noise
    )


def regression_posterior(X, y, noise):
    N, H = X.shape[-2:]
    design = np.swapaxes(X, -1, -2) / noise[..., None] ** 2
    cov = np.linalg.inv(np.eye(H) + design @ X)
    mean = (cov @ design @ y[..., None])[..., 0]
    gram = X @ np.swapaxes(X, -1, -2) + noise[..., None] ** 2 * np.eye(N)
    fit = (y[..., None, :] @ np.linalg.solve(gram, y[..., None]))[..., 0, 0]
    log_evidence = -0.5 * (fit + np.linalg.slogdet(gram)[1] + N * np.log(2 * np.pi))
    return X, y, noise, mean, cov, log_evidence


def best_bound(process, model, variances):
    """Return the best bound that affine controls reach, by dynamic programming, and its policy.

    With variances="fixed" the steps have the variances of the reference process. With "free" they
    have the best diagonal ones.
    """
    X, y, noise = model[:3]
    H = X.shape[-1]
    design = np.swapaxes(X, -1, -2) / noise[..., None] ** 2
    # log p(y, x) - log N(x; 0, I) = value + b'x - x'Px / 2
    P, b = design @ X, (design @ y[..., None])[..., 0]
    value = (-0.5 * np.square(y / noise) - np.log(noise) - 0.5 * np.log(2 * np.pi)).sum(-1)
    policy = []
    for r, v in zip(process.carry, process.variance, strict=True):
        M = np.linalg.inv(P + np.eye(H) / v)
        offset = (M @ b[..., None])[..., 0]
        diagonal = np.diagonal(P, axis1=-2, axis2=-1)
        eta = 1 / (diagonal + 1 / v) if variances == "free" else np.full(diagonal.shape, v)
        spread = (diagonal * eta + eta / v - 1 - np.log(eta / v)).sum(-1)
        policy.append((offset, r / v * M, eta))
        value = value + 0.5 * (b * offset).sum(-1) - 0.5 * spread
        P, b = r**2 / v * np.eye(H) - (r / v) ** 2 * M, r / v * offset
    policy = [np.stack(a, axis=1) for a in zip(*policy, strict=True)]
    return value - 0.5 * np.trace(P, axis1=-2, axis2=-1), policy


def gaussian_kl(cov_p, mean_q, cov_q):
    """Return KL[N(0, P) || N(mean, Q)]."""
    inverse = np.linalg.inv(cov_q)
    logs = np.linalg.slogdet(cov_q)[1] - np.linalg.slogdet(cov_p)[1]
    fit = (mean_q[..., None, :] @ inverse @ mean_q[..., None])[..., 0, 0]
    trace = np.trace(inverse @ cov_p, axis1=-2, axis2=-1)
    return 0.5 * (trace + fit - mean_q.shape[-1] + logs)


def closed_form_gap(process, model):
    """Return the cost of the reference's step variances and of its initial distribution."""
    mean, C = model[3:5]
    eye, gap = np.eye(mean.shape[-1]), 0.0
    for r, v in zip(process.carry, process.variance, strict=True):
        back = C - r**2 * C @ np.linalg.solve(r**2 * C + v * eye, C)
        gap = gap + gaussian_kl(v * eye, np.zeros_like(mean), back)
        mean, C = r * mean, r**2 * C + v * eye
    return gap + gaussian_kl(eye, mean, C)


def log_weights(process, model, policy, keys, drawn):
    """Return log p(y, x_0) - log q(x_0 | x_1) - cost of paths drawn with an affine policy."""
    X, y, noise = (jnp.asarray(a[0]) for a in model[:3])
    offset, slope, eta = (jnp.asarray(a[0]) for a in policy)
    normal = jax.scipy.stats.norm.logpdf
    r, c = jnp.asarray(process.carry), jnp.asarray(process.gain)

    def control(k, x):
        return (offset[k] + slope[k] @ x - r[k] * x) / c[k]

    def one(key):
        key, last = random.split(key)
        x, mean, cost = simulate_process(key, process, Partial(control), eta, drawn=drawn)
        end = mean + jnp.sqrt(eta[0]) * random.normal(last, mean.shape)
        cost = cost + last_step_cost(process, x, end, 0.0)
        joint = jnp.sum(normal(y, X @ end, noise)) + jnp.sum(normal(end))
        return joint - jnp.sum(normal(end, mean, jnp.sqrt(eta[0]))) - cost

    return jax.jit(jax.vmap(one))(keys)
