"""The log evidence by importance sampling from a diffusion guide."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.util import log_density

from dgp_ppl._checks import check_count, check_key, check_kind, checked_call
from dgp_ppl._partition import CallArrays, Partition, compiled
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference._params import checked_params
from dgp_ppl.inference.evidence._weights import LEAST_WORTH
from dgp_ppl.inference.guides import Diffusion
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.inference.programs._handlers import check_whole

_BATCH = 32  # paths in memory


class ImportanceEvidence(NamedTuple):
    """The result of `importance_evidence`, in nats.

    Attributes:
        log_evidence: log of the mean importance weight.
        standard_error: from the spread of the weights. Do not trust it where few paths carry the
            mean; there is a warning where they are worth less than a quarter of their number.
        effective_paths: (sum of weights)² / sum of squared weights.
        elbo: mean of the log weights: the bound from the same paths.
    """

    log_evidence: float
    standard_error: float
    effective_paths: float
    elbo: float


def importance_evidence(
    key: PRNGKey,
    model: Model,
    guide: Diffusion,
    params: Params | Fitted,
    *args: Any,
    num_paths: int = 256,
    **kwargs: Any,
) -> ImportanceEvidence:
    """Estimate log p(y) on all data by importance sampling from a diffusion guide.

    The mean weight is unbiased for the evidence that the ELBO bounds: data are independent given
    the inducing values, every path draws unit noise for the hidden layers, and the last layer's
    function is integrated inside the logarithm. For one layer this is Titsias' collapsed bound. For
    hidden layers it is at most the evidence of the model that MCMC samples, and the noise of N rows
    spreads the weights, so that more paths are needed. The expectation of the estimate is at most
    its target (Burda et al. 2016). ``observe`` with Monte Carlo expectations raises the target, but
    not above the evidence of the model that MCMC samples.

    Args:
        key: random key.
        model: the model.
        guide: its fitted guide.
        params: the fit's params, or its result.
        *args: the model's arguments.
        num_paths: importance samples, each a path of the denoising process.
        **kwargs: the model's keyword arguments, without ``batch_size``.

    Returns:
        The estimate, its error, and the bound from the same paths.

    Raises:
        ValueError: if the model subsamples its data, `num_paths` is less than 2, or the model and
            the guide have params of other names or shapes.
        TypeError: if the guide is not a `Diffusion`, or `num_paths` is not an integer.
    """
    check_key("importance_evidence", key)
    wanted = "a Diffusion, whose paths have importance weights"
    check_kind("importance_evidence", "guide", guide, Diffusion, wanted)
    check_count("importance_evidence", "num_paths", num_paths, 2)
    call = checked_call("importance_evidence", model, guide, args, kwargs)
    check_data("importance_evidence", model, call)
    partition, data = Partition.split(model, call)
    params = checked_params("importance_evidence", params, model, guide, call)
    drawn = guide.drawn()

    def one(key: PRNGKey, params: Params, data: CallArrays) -> Array:
        key, key_noise = random.split(key)
        call = partition.join(data)
        log_q: Any
        log_p: Any
        log_q, path = log_density(handlers.seed(drawn, key), call.args, call.kwargs, params)
        program = handlers.replay(handlers.seed(model, key_noise), path)
        log_p, trace = log_density(program, call.args, call.kwargs, params)
        check_whole("importance_evidence", trace, "; leave out batch_size")
        return log_p - log_q

    @compiled
    def all_paths(keys: Array, params: Params, data: CallArrays) -> Array:
        return lax.map(lambda k: one(k, params, data), keys, batch_size=_BATCH)

    w = all_paths(random.split(key, num_paths), params, data)
    total = logsumexp(w)
    normalized = jnp.exp(w - total)
    effective = float(1 / jnp.sum(jnp.square(normalized)))
    if effective < LEAST_WORTH * num_paths:
        warnings.warn(
            f"importance_evidence: {num_paths} paths are worth {effective:.1f}, so the error is "
            "rough, and the value mostly too low: fit the guide longer, or see annealed_evidence",
            stacklevel=2,
        )
    # Var(mean w) / mean(w)² = (S / effective - 1) / S
    error = math.sqrt(max(1 / effective - 1 / num_paths, 0.0))
    return ImportanceEvidence(float(total) - math.log(num_paths), error, effective, float(w.mean()))
