"""What the tests of objectives share: values at many keys, and closed forms."""

import jax
import numpy as np
from jax import random
from support.helpers import KEY, spread

NOISE = 0.3
Z = (spread(5), spread(5))
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
LOG_WEIGHTS = np.log(WEIGHTS / WEIGHTS.sum())


def values(objective, model, guide, params, *args, num=None, key=KEY, **kwargs):
    """The objective at as many keys, [num]; at one, []."""
    one = lambda k, p: -objective.loss(k, p, model, guide, *args, **kwargs)  # noqa: E731
    if num is None:
        return jax.jit(one)(key, params)
    return jax.jit(jax.vmap(one, (0, None)))(random.split(key, num), params)


def kl(m, R):
    return 0.5 * ((R**2).sum() + (m**2).sum() - m.size) - np.log(np.diag(R)).sum()


def kls(params):
    return sum(
        kl(np.asarray(params[f"l{l}.v.loc"]), np.asarray(params[f"l{l}.v.scale_tril"][0]))
        for l in (1, 2)
    )


def log_mean_exp_of_pairs(log_terms, log_weights):
    """E[log 1/2 (exp a + exp b)] for independent a, b among terms [S, N] of such weights, [N]."""
    pairs = np.logaddexp(log_terms[:, None], log_terms[None, :]) - np.log(2)
    return np.einsum("s,t,stn->n", np.exp(log_weights), np.exp(log_weights), pairs)
