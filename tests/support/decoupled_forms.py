"""Decoupled posteriors of every form: random params, and the same posteriors in NumPy."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from support.helpers import (
    KEY,
    squared_exponential,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.core._handover import handover_of
from dgp_ppl.linalg import default_jitter

MEANS = ("orthogonal", "cb")
COVARIANCES = {"whitened": "scale_tril", "cb": "precision_tril"}
FORMS = list(itertools.product(MEANS, COVARIANCES))
NOISE = 0.3
M_A, M_B, P = 9, 5, 2


def points(num, seed):
    return np.random.default_rng(seed).uniform(-2, 2, (num, 2))


KERNEL = kernels.SquaredExponential(1.5, 0.8)


def model(x, y=None, *, z, kernel=KERNEL):
    """One layer with two inputs and two outputs."""
    f = dgp.gp("l1", kernel, z, out=P)
    with dgp.minibatch(x, y) as (x, y):
        observed = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE).to_event(1))
        numpyro.sample("y", observed, obs=y)


def random_params(mean, covariance, seed=0):
    rng = np.random.default_rng(seed)
    tril = np.tril(0.4 * rng.standard_normal((P, M_B, M_B)), -1) + 0.7 * np.eye(M_B)
    params = {"l1.v.z_mean": points(M_A, 1), "l1.v.weights": rng.standard_normal((M_A, P))}
    params[f"l1.v.{COVARIANCES[covariance]}"] = tril
    if mean == "orthogonal":
        params["l1.v.loc"] = rng.standard_normal((M_B, P))
    return {n: jnp.asarray(a, float) for n, a in params.items()}


def handovers(guide, params, *args, **kwargs):
    """Return the q and sparse GP that the guide hands over, by site."""
    program = handlers.substitute(handlers.seed(guide, KEY), data=params)
    sites = handlers.trace(program).get_trace(*args, **kwargs)
    found = {n: handover_of(s) for n, s in sites.items() if s["type"] == "sample"}
    return {n: {"q": h.q, "sparse": h.sparse} for n, h in found.items()}


class DenseDecoupled:
    """The same posterior in NumPy, at any points W and for one output at a time.

    The values at W have independent noise with the variance of the jitter, as in the library.
    """

    def __init__(self, mean, covariance, params, kernel=squared_exponential):
        self.p = {n[5:]: np.asarray(a, np.float64) for n, a in params.items()}
        self.mean_form, self.covariance, self.kernel = mean, covariance, kernel
        self.z_b = points(M_B, 2)

    def at(self, extra, output):
        """Return prior covariance, mean and covariance of q at Z_a, Z_b and the extra points."""
        a, b = slice(0, M_A), slice(M_A, M_A + M_B)
        W = np.concatenate([self.p["z_mean"], self.z_b, extra])
        K = self.kernel(W, W)
        K = K + default_jitter(np.float64) * K[0, 0] * np.eye(len(W))
        L_b = np.linalg.cholesky(K[b, b])
        m, R = self.p["weights"][:, output], self.p[COVARIANCES[self.covariance]][output]
        if self.mean_form == "cb":
            mean = K[:, a] @ m
        else:
            orthogonal = K[:, a] - K[:, b] @ np.linalg.solve(K[b, b], K[b, a])
            mean = orthogonal @ m + K[:, b] @ np.linalg.solve(L_b.T, self.p["loc"][:, output])
        if self.covariance == "whitened":
            S = L_b @ R @ R.T @ L_b.T
        else:
            S = np.linalg.inv(np.linalg.inv(K[b, b]) + R.T @ R)
        half = np.linalg.solve(K[b, b], K[b, :])
        return K, mean, K - half.T @ (K[b, b] - S) @ half

    def kl(self, extra):
        total = 0.0
        for output in range(P):
            K, mean, cov = self.at(extra, output)
            quadratic = mean @ np.linalg.solve(K, mean)
            logs = np.linalg.slogdet(K)[1] - np.linalg.slogdet(cov)[1]
            total += 0.5 * (np.trace(np.linalg.solve(K, cov)) - len(K) + quadratic + logs)
        return total


def best_params(x, y, z_a, z_b):
    """Return the optimal "cb" mean and "whitened" covariance, in closed form."""
    jitter = default_jitter(np.float64) * 1.5
    K_a = squared_exponential(z_a, z_a) + jitter * np.eye(len(z_a))
    K_b = squared_exponential(z_b, z_b) + jitter * np.eye(len(z_b))
    L_a, L_b = np.linalg.cholesky(K_a), np.linalg.cholesky(K_b)
    A_a = np.linalg.solve(L_a, squared_exponential(z_a, x))
    A_b = np.linalg.solve(L_b, squared_exponential(z_b, x))
    m = np.linalg.solve(NOISE**2 * np.eye(len(z_a)) + A_a @ A_a.T, A_a @ np.asarray(y))
    S = np.linalg.inv(np.eye(len(z_b)) + A_b @ A_b.T / NOISE**2)
    params = {
        "l1.v.z_mean": z_a,
        "l1.v.weights": np.linalg.solve(L_a.T, m)[:, None],
        "l1.v.scale_tril": np.linalg.cholesky(S)[None],
        "l1.z": z_b,
        "l1.variance": 1.5,
        "l1.lengthscale": np.array([0.8]),
        "noise": NOISE,
    }
    return {n: jnp.asarray(a, float) for n, a in params.items()}
