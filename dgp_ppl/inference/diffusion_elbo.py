"""Objectives of the diffusion guide, and the evidence from its chains."""

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from numpyro.infer.util import log_density

from dgp_ppl._arguments import Skeleton
from dgp_ppl._checks import check_count
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.diffusion import PREFIX, Diffusion

__all__ = ["DiffusionELBO", "Evidence", "evidence"]

_ONE_CHAIN = TraceMeanField_ELBO()
_AT_ONCE = 32  # chains in memory for the evidence


class DiffusionELBO(ELBO):
    """The bound from several chains that share one minibatch.

    With one chain it is `TraceMeanField_ELBO`, which stock `SVI` may use as well. (NumPyro's own
    ``num_particles`` draws another minibatch for each particle.) It serves any guide.

    Args:
        num_chains: chains of a step.
        objective: ``"elbo"``, or ``"log_variance"`` for gradients of another kind: the score and
            the step variances then descend half the variance, over chains, of the log importance
            weights, with the chains held constant (Richter et al. 2020, "VarGrad"). In expectation
            that gradient is the bound's. The base's and the model's params ascend the bound, which
            is also what the loss reports; a step costs about twice as much.
        vectorize: whether chains are computed side by side, or one after the other.

    Raises:
        ValueError: for another `objective`, or fewer chains than it takes (2 for
            ``"log_variance"``).
        TypeError: for a number of chains that is no integer.
    """

    def __init__(
        self,
        num_chains: int = 1,
        *,
        objective: Literal["elbo", "log_variance"] = "elbo",
        vectorize: bool = True,
    ) -> None:
        if objective not in ("elbo", "log_variance"):
            raise ValueError(
                f"DiffusionELBO: objective is {objective!r}, wanted 'elbo' or 'log_variance'"
            )
        # A variance is over two chains at least.
        caller = f"DiffusionELBO(objective={objective!r})"
        check_count(caller, "num_chains", num_chains, 1 if objective == "elbo" else 2)
        super().__init__(num_chains, vectorize)
        self.num_chains, self.objective = num_chains, objective

    def _options(self) -> tuple[Any, ...]:
        return self.num_chains, self.objective, self.vectorize_particles

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiffusionELBO) and self._options() == other._options()

    def __hash__(self) -> int:
        return hash(self._options())

    def loss(
        self,
        rng_key: PRNGKey,
        param_map: Params,
        model: Model,
        guide: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Array:
        """Minus the bound: the mean over chains."""
        key_rows, key_chains, key_noise = random.split(rng_key, 3)
        rows = {"rng_seed": key_rows, "hide_types": ["sample", "prng_key", "control_flow"]}
        keys = random.split(key_chains, self.num_chains)
        log_variance = self.objective == "log_variance"
        if log_variance:
            _check_weighs("DiffusionELBO(objective='log_variance')", guide)
        own = {n: n.startswith(PREFIX) for n in param_map}
        shared = handlers.seed(model, **rows)

        def loss(key: PRNGKey) -> Array:
            params = _held(param_map, own) if log_variance else param_map
            seeded = handlers.seed(guide, **rows)
            one: Any = _ONE_CHAIN.loss(key, params, shared, seeded, *args, **kwargs)
            return one

        value = jnp.mean(self.vectorize_particles_fn(loss, keys))
        if not log_variance:
            return value
        detached = handlers.seed(guide.drawn(detached=True), **rows)
        others = {n: not chain for n, chain in own.items()}

        def log_weight(key: PRNGKey) -> Array:
            params = _held(param_map, others)
            # One unit noise for all chains: what it adds to the variance is none of theirs.
            program = handlers.seed(shared, key_noise)
            return _log_weight(key, params, program, detached, args, kwargs)

        weights = self.vectorize_particles_fn(log_weight, keys)
        half = 0.5 * jnp.var(weights, ddof=1)
        return value + half - lax.stop_gradient(half)


class Evidence(NamedTuple):
    """An estimate of log p(y), in nats.

    Attributes:
        log_evidence: log of the mean importance weight.
        standard_error: of that, from the weights' spread. Not to be trusted where few chains carry
            the mean.
        effective_chains: (sum of weights)² / sum of squared weights.
        elbo: mean of the log weights: the bound from the same chains.
    """

    log_evidence: float
    standard_error: float
    effective_chains: float
    elbo: float


def evidence(
    key: PRNGKey,
    model: Model,
    guide: Diffusion,
    params: Params,
    *args: Any,
    num_chains: int = 256,
    **kwargs: Any,
) -> Evidence:
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
        num_chains: importance samples.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        ValueError: if the model takes a minibatch, `num_chains` is less than 2, or the guide is of
            ``discretization="euler"``, whose chains have no weights.
        TypeError: if the guide is not a `Diffusion`, or `num_chains` is no integer.
    """
    _check_weighs("evidence", guide)
    check_count("evidence", "num_chains", num_chains, 2)
    skeleton, data = Skeleton.split(model, args, kwargs)
    with handlers.block(), handlers.seed(rng_seed=key):
        guide.setup(*args, **kwargs)
    drawn = guide.drawn()

    def one(key: PRNGKey, params: Params, data: list[Any]) -> Array:
        args, kwargs = skeleton.join(data)
        key, key_noise = random.split(key)
        program = handlers.seed(model, key_noise)
        return _log_weight(key, params, program, drawn, args, kwargs, whole=True)

    @jax.jit
    def all_chains(keys: Array, params: Params, data: list[Any]) -> Array:
        return lax.map(lambda k: one(k, params, data), keys, batch_size=_AT_ONCE)

    w = all_chains(random.split(key, num_chains), params, data)
    total = logsumexp(w)
    share = jnp.exp(w - total)
    effective = 1 / jnp.sum(jnp.square(share))
    # Var(mean w) / mean(w)² = (S / effective - 1) / S
    error = math.sqrt(max(float(1 / effective - 1 / num_chains), 0.0))
    return Evidence(float(total) - math.log(num_chains), error, float(effective), float(w.mean()))


def _check_weighs(caller: str, guide: Any) -> None:
    """Whether the guide's chains have importance weights."""
    if not isinstance(guide, Diffusion):
        raise TypeError(
            f"{caller}: guide is a {type(guide).__name__}, wanted a Diffusion: importance weights "
            "are asked of its chains"
        )
    if guide.discretization != "exact":
        raise ValueError(
            f"{caller}: guide has discretization={guide.discretization!r}, whose chains have no "
            "importance weights; wanted discretization='exact'"
        )


def _held(params: Params, which: dict[str, bool]) -> Params:
    return {n: lax.stop_gradient(a) if which[n] else a for n, a in params.items()}


def _log_weight(
    key: PRNGKey,
    params: Params,
    model: Model,
    guide: Model,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    whole: bool = False,
) -> Array:
    """log p(y, draws) - log q(draws) of one drawn chain; `model` has its key already."""
    log_q: Any
    log_p: Any
    log_q, drawn = log_density(handlers.seed(guide, key), args, kwargs, params)
    log_p, trace = log_density(handlers.replay(model, drawn), args, kwargs, params)
    for name, site in trace.items():
        if whole and site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"evidence: plate {name!r} takes {len(site['value'])} of {site['args'][0]} rows, "
                "wanted all; leave out batch_size"
            )
    return log_p - log_q
