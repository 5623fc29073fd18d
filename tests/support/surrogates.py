"""A surrogate for tests of studies: an exact GP with given params, of one shape for any rows."""

from types import SimpleNamespace

import numpy as np

from dgp_ppl import MeanField, models
from dgp_ppl.comparison import Fitted

SIZE = 64


def given_gp(task, lengthscale=0.7, variance=1.0, noise=1e-2):
    """Return the exact GP on standardised rows, in float64 and padded to 64 rows."""
    x, y = (np.asarray(a, np.float64) for a in task.data)
    num, dim = x.shape
    # Rows far away know nothing of y, and v of them keeps its prior.
    z = np.concatenate([x, 1e3 + 50.0 * np.arange(SIZE - num)[:, None] * np.ones(dim)])
    apart = np.square((z[:, None] - z) / lengthscale).sum(axis=-1)
    K = variance * np.exp(-0.5 * apart) + 1e-8 * np.eye(SIZE)
    L = np.linalg.cholesky(K)
    A = L[:num].T / noise  # L⁻¹ k(z, x) of z that begin with x
    B = np.eye(SIZE) + A @ A.T
    U = np.linalg.cholesky(B[::-1, ::-1])[::-1, ::-1]
    tril = np.linalg.inv(U).T
    params = {
        "l1.z": z, "l1.lengthscale": np.full(dim, lengthscale), "l1.variance": np.array(variance),
        "l1.v.loc": (tril @ tril.T @ A @ (y / noise))[:, None], "l1.v.scale_tril": tril[None],
        "noise": np.array(noise),
    }  # fmt: skip
    return Fitted(models.svgp, MeanField(models.svgp), {"z": z}, SimpleNamespace(params=params))


def dense(x, y, at, lengthscale=0.7, variance=1.0, noise=1e-2):
    """Return mean and covariance of f at inputs by dense algebra."""

    def k(a, b):
        return variance * np.exp(-0.5 * np.square((a[:, None] - b) / lengthscale).sum(axis=-1))

    K = k(x, x) + noise**2 * np.eye(len(x))
    gain = np.linalg.solve(K, k(x, at)).T
    return gain @ y, k(at, at) - gain @ k(x, at)
