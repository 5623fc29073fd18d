"""The objective of the diffusion guide, and the importance weights of its paths."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from numpyro.infer.util import log_density

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call, ComparedByArguments
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.guides.diffusion._guide import PREFIX, Diffusion

__all__ = ["DiffusionELBO", "check_weights", "log_weight"]

_ONE_PATH = TraceMeanField_ELBO()


class DiffusionELBO(ComparedByArguments, ELBO):
    """The evidence lower bound from several paths of a `Diffusion` guide.

    All paths share one minibatch. (NumPyro's ``num_particles`` draws a minibatch for each
    particle.) With one path it equals `TraceMeanField_ELBO`, which works with stock `SVI` too. It
    accepts any guide::

        guide = Diffusion(model)
        result = dgp.fit(key, model, guide, x, y, loss=DiffusionELBO(16))

    ``objective="log_variance"`` changes the gradients, not the loss that is reported. The score and
    the step variances descend half the variance over paths of the log importance weights, with the
    paths held constant (Richter et al. 2020, "VarGrad"). In expectation this is the gradient of the
    bound. The base's and the model's params still ascend the bound. A step costs about twice as
    much.

    Args:
        num_paths: number of paths per step.
        objective: ``"elbo"`` or ``"log_variance"``.
        vectorize: whether to compute the paths in parallel, or one after the other.

    Raises:
        ValueError: for another `objective`, or too few paths (``"log_variance"`` needs 2). `loss`
            raises it for a guide whose paths have no importance weights (``"log_variance"`` only).
        TypeError: if `num_paths` is not an integer. `loss` raises it for a guide other than
            `Diffusion` (``"log_variance"`` only).
    """

    def __init__(
        self,
        num_paths: int = 1,
        *,
        objective: Literal["elbo", "log_variance"] = "elbo",
        vectorize: bool = True,
    ) -> None:
        if objective not in ("elbo", "log_variance"):
            raise ValueError(
                f"DiffusionELBO: objective is {objective!r}, wanted 'elbo' or 'log_variance'"
            )
        # A variance needs two paths.
        caller = f"DiffusionELBO(objective={objective!r})"
        check_count(caller, "num_paths", num_paths, 1 if objective == "elbo" else 2)
        super().__init__(num_paths, vectorize)
        self.num_paths, self.objective = num_paths, objective

    def loss(
        self,
        rng_key: PRNGKey,
        param_map: Params,
        model: Model,
        guide: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Array:
        """Return minus the bound in nats, averaged over paths."""
        key_rows, key_paths, key_noise = random.split(rng_key, 3)
        rows = {"rng_seed": key_rows, "hide_types": ["sample", "prng_key", "control_flow"]}
        keys = random.split(key_paths, self.num_paths)
        log_variance = self.objective == "log_variance"
        if log_variance:
            check_weights("DiffusionELBO(objective='log_variance')", guide)
        of_process = {n: n.startswith(PREFIX) for n in param_map}
        same_rows = handlers.seed(model, **rows)

        def loss(key: PRNGKey) -> Array:
            params = _frozen(param_map, of_process) if log_variance else param_map
            seeded = handlers.seed(guide, **rows)
            one: Any = _ONE_PATH.loss(key, params, same_rows, seeded, *args, **kwargs)
            return one

        value = jnp.mean(self.vectorize_particles_fn(loss, keys))
        if not log_variance:
            return value
        detached = handlers.seed(guide.drawn(detached=True), **rows)
        others = {n: not process for n, process in of_process.items()}

        def weight(key: PRNGKey) -> Array:
            params = _frozen(param_map, others)
            # One unit noise for all paths: its own variance must not enter theirs.
            seeded = handlers.seed(same_rows, key_noise)
            return log_weight(key, params, seeded, detached, Call(args, kwargs))

        weights = self.vectorize_particles_fn(weight, keys)
        half = 0.5 * jnp.var(weights, ddof=1)
        return value + half - lax.stop_gradient(half)


def check_weights(caller: str, guide: Any) -> None:
    """Check that the guide's paths have importance weights.

    Raises:
        TypeError: if the guide is not a `Diffusion`.
        ValueError: if the guide has ``discretization="euler"``.
    """
    if not isinstance(guide, Diffusion):
        raise TypeError(
            f"{caller}: guide is a {type(guide).__name__}, wanted a Diffusion, whose paths have "
            "importance weights"
        )
    if guide.discretization != "exact":
        raise ValueError(
            f"{caller}: guide has discretization={guide.discretization!r}, whose paths have no "
            "importance weights; wanted discretization='exact'"
        )


def _frozen(params: Params, which: dict[str, bool]) -> Params:
    """Hold some params constant in gradients."""
    return {n: lax.stop_gradient(a) if which[n] else a for n, a in params.items()}


def log_weight(
    key: PRNGKey,
    params: Params,
    model: Model,
    guide: Model,
    call: Call,
    *,
    all_rows: bool = False,
) -> Array:
    """Return log p(y, draws) - log q(draws) for one path of the guide.

    Args:
        key: random key of the path.
        params: the guide's and the model's params.
        model: the model, seeded.
        guide: a `Diffusion` guide whose last step is drawn; see `Diffusion.drawn`.
        call: the model's arguments.
        all_rows: whether to refuse a minibatch.

    Raises:
        ValueError: if the model takes a minibatch where `all_rows` are wanted.
    """
    log_q: Any
    log_p: Any
    log_q, drawn = log_density(handlers.seed(guide, key), call.args, call.kwargs, params)
    log_p, trace = log_density(handlers.replay(model, drawn), call.args, call.kwargs, params)
    for name, site in trace.items():
        if all_rows and site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"importance_evidence: plate {name!r} takes {len(site['value'])} of "
                f"{site['args'][0]} rows, wanted all; leave out batch_size"
            )
    return log_p - log_q
