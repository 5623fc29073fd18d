"""Objectives of the diffusion guide, and the evidence from its chains."""

from typing import Any, Literal

import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from numpyro.infer.util import log_density

from dgp_ppl._checks import check_count
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.guides.diffusion._guide import PREFIX, Diffusion

__all__ = ["DiffusionELBO", "check_weights", "log_weight"]

_ONE_CHAIN = TraceMeanField_ELBO()


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
            check_weights("DiffusionELBO(objective='log_variance')", guide)
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

        def weight(key: PRNGKey) -> Array:
            params = _held(param_map, others)
            # One unit noise for all chains: what it adds to the variance is none of theirs.
            program = handlers.seed(shared, key_noise)
            return log_weight(key, params, program, detached, args, kwargs)

        weights = self.vectorize_particles_fn(weight, keys)
        half = 0.5 * jnp.var(weights, ddof=1)
        return value + half - lax.stop_gradient(half)


def check_weights(caller: str, guide: Any) -> None:
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


def log_weight(
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
