"""A model of two tiny layers, and its evidence by quadrature."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import logsumexp
from support.helpers import KEY, squared_exponential
from support.objectives import LOG_WEIGHTS, NODES, NOISE

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.evidence._annealing import annealed_evidence

X = np.array([[-1.0], [0.4], [1.2]])
Y = np.array([0.9, -0.6, 0.7])
Z_ONE = np.zeros((1, 1))
Q = {1: (0.4, 0.5), 2: (-0.3, 0.6)}  # mean and standard deviation of q(v) of both layers
TINY = {
    f"l{l}.v.{n}": jnp.full(s, a)
    for l, (m, r) in Q.items()
    for n, s, a in (("loc", (1, 1), m), ("scale_tril", (1, 1, 1), r))
}


def tiny(x, y=None, *, batch_size=None):
    """Two layers with one inducing value each.

    The hidden layer's noise, given v, has a large variance.
    """
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), Z_ONE, mean=dgp.means.identity)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.5, 0.8), Z_ONE)
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, NOISE)), obs=y)


def given(v, x):
    """Return mean and variance at x [..., N] of a layer of `tiny` with a zero mean, given v."""
    k = squared_exponential(Z_ONE, np.reshape(x, (-1, 1)))[0].reshape(np.shape(x))
    return k / np.sqrt(1.5) * v, 1.5 - k**2 / 1.5


def hidden(v, nodes):
    """Return the hidden values at the nodes of the noise, [S, N]."""
    mean, var = given(v, X[:, 0])
    return X[:, 0] + mean + np.sqrt(var) * nodes[:, None]


def tiny_evidence(*, bound=False):
    """Return log p(y) of `tiny`, by quadrature over v1, v2 and the noise.

    The rows are independent given v. With `bound`, return the log of the integral over v of
    p(v) exp(E log p(y | f)) instead, where the expectation is over the noise and f.
    """
    total = []
    for v1, w1 in zip(NODES, LOG_WEIGHTS, strict=True):
        h = hidden(v1, NODES)
        for v2, w2 in zip(NODES, LOG_WEIGHTS, strict=True):
            mean, var = given(v2, h)
            if bound:
                expected = stats.norm(mean, NOISE).logpdf(Y) - var / (2 * NOISE**2)
                points = np.exp(LOG_WEIGHTS) @ expected
            else:
                terms = stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(Y)
                points = logsumexp(terms + LOG_WEIGHTS[:, None], axis=0)
            total.append(w1 + w2 + points.sum())
    return logsumexp(total)


def assert_evidence(found, truth, errors=4.0):
    assert abs(found.log_evidence - truth) < errors * found.standard_error + 2e-3
    assert found.standard_error < 0.3


def annealed(model, guide, params, *args, **options):
    return annealed_evidence(
        KEY, model, guide, params, *args, **({"num_particles": 64, "progress": False} | options)
    )
