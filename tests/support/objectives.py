"""Values of objectives at many keys, and closed forms to compare them with."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from support.helpers import KEY, spread

NOISE = 0.3
Z = (spread(5), spread(5))
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
LOG_WEIGHTS = np.log(WEIGHTS / WEIGHTS.sum())


def values(objective, model, guide, params, *args, num=None, key=KEY, **kwargs):
    """Return the objective at `num` keys, [num], or at one key, []."""
    one = lambda k, p: -objective.loss(k, p, model, guide, *args, **kwargs)  # noqa: E731
    if num is None:
        return jax.jit(one)(key, params)
    return jax.jit(jax.vmap(one, (0, None)))(random.split(key, num), params)


def kl(m, R):
    """Return KL[N(m, R R') || N(0, I)] for a triangular R."""
    return 0.5 * ((R**2).sum() + (m**2).sum() - m.size) - np.log(np.diag(R)).sum()


def kls(params):
    """Return the sum of both layers' KL."""
    return sum(
        kl(np.asarray(params[f"l{l}.v.loc"]), np.asarray(params[f"l{l}.v.scale_tril"][0]))
        for l in (1, 2)
    )


def log_mean_exp_of_pairs(log_terms, log_weights):
    """Return E[log((exp a + exp b) / 2)], [N], for independent a and b.

    Both take the values `log_terms`, [S, N], with the log probabilities `log_weights`, [S].
    """
    pairs = np.logaddexp(log_terms[:, None], log_terms[None, :]) - np.log(2)
    return np.einsum("s,t,stn->n", np.exp(log_weights), np.exp(log_weights), pairs)


def hyperparameters(z):
    """Return the params of `sgpr`, which are the params of `svgp` without q(v).

    The kernel is the kernel of `exact_evidence`.
    """
    return {"l1.z": z, "l1.variance": 1.5, "l1.lengthscale": jnp.array([0.8]), "noise": NOISE}
