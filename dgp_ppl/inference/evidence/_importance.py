"""The evidence by importance sampling: the mean weight of a diffusion guide's draws."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.guides import Diffusion, check_weights, log_weight

__all__ = ["ImportanceEvidence", "importance_evidence"]

_AT_ONCE = 32  # processes in memory


class ImportanceEvidence(NamedTuple):
    """An estimate of log p(y), in nats.

    Attributes:
        log_evidence: log of the mean importance weight.
        standard_error: of that, from the weights' spread. Not to be trusted where few chains carry
            the mean.
        effective_paths: (sum of weights)² / sum of squared weights.
        elbo: mean of the log weights: the bound from the same chains.
    """

    log_evidence: float
    standard_error: float
    effective_paths: float
    elbo: float


def importance_evidence(
    key: PRNGKey,
    model: Model,
    guide: Diffusion,
    params: Params,
    *args: Any,
    num_paths: int = 256,
    **kwargs: Any,
) -> ImportanceEvidence:
    """Importance-weighted estimate of log p(y) on all data from chains drawn to their end.

    The mean weight is unbiased for the evidence of what the bound is a bound of given the draws:
    points independent given the inducing values, hidden layers drawn with fresh unit noise in each
    chain, and the last layer's function integrated inside the logarithm. With one layer that is
    Titsias' collapsed bound, which is log p(y) where the inducing points are the data; with hidden
    layers it is at most the evidence of the model that MCMC samples, and the unit noise of N
    points adds to the weights' spread, so that more chains are needed. In expectation the estimate
    is never above its target (Burda et al. 2016). (Expectations that `observe` estimates by Monte
    Carlo raise the target, towards the evidence of the model that MCMC samples: never above it.)

    Args:
        key: random key.
        model: the model.
        guide: its fitted guide.
        params: the fit's params.
        *args: the model's arguments.
        num_paths: importance samples.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        ValueError: if the model takes a minibatch, `num_paths` is less than 2, or the guide is of
            ``discretization="euler"``, whose chains have no weights.
        TypeError: if the guide is not a `Diffusion`, or `num_paths` is no integer.
    """
    check_weights("importance_evidence", guide)
    check_count("importance_evidence", "num_paths", num_paths, 2)
    partition, data = Partition.split(model, Call(args, kwargs))
    with handlers.block(), handlers.seed(rng_seed=key):
        guide.setup(*args, **kwargs)
    drawn = guide.drawn()

    def one(key: PRNGKey, params: Params, data: list[Any]) -> Array:
        key, key_noise = random.split(key)
        program = handlers.seed(model, key_noise)
        return log_weight(key, params, program, drawn, partition.join(data), all_rows=True)

    @jax.jit
    def all_chains(keys: Array, params: Params, data: list[Any]) -> Array:
        return lax.map(lambda k: one(k, params, data), keys, batch_size=_AT_ONCE)

    w = all_chains(random.split(key, num_paths), params, data)
    total = logsumexp(w)
    share = jnp.exp(w - total)
    effective = 1 / jnp.sum(jnp.square(share))
    # Var(mean w) / mean(w)² = (S / effective - 1) / S
    error = math.sqrt(max(float(1 / effective - 1 / num_paths), 0.0))
    return ImportanceEvidence(
        float(total) - math.log(num_paths), error, float(effective), float(w.mean())
    )
