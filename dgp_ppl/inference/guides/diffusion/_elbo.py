"""The objective of the diffusion guide, and the importance weights of its paths."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO
from numpyro.infer.util import log_density

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call, ComparedByFields
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.guides.diffusion._guide import Diffusion

__all__ = ["DiffusionELBO", "check_weights", "log_weight"]

_ONE_PATH = TraceMeanField_ELBO()


class DiffusionELBO(ComparedByFields, ELBO):
    """The evidence lower bound from several paths of a `Diffusion` guide.

    All paths share one minibatch. (NumPyro's ``num_particles`` draws a minibatch for each
    particle.) With one path it equals `TraceMeanField_ELBO`, which works with stock `SVI` too. It
    accepts any guide::

        guide = Diffusion(model)
        result = dgp.fit(key, model, guide, x, y, loss=DiffusionELBO(16))

    Args:
        num_paths: number of paths per step.
        vectorize: whether to compute the paths in parallel, or one after the other.

    Raises:
        ValueError: if `num_paths` is not positive.
        TypeError: if it is not an integer.
    """

    def __init__(self, num_paths: int = 1, *, vectorize: bool = True) -> None:
        check_count("DiffusionELBO", "num_paths", num_paths)
        super().__init__(num_paths, vectorize)
        self.num_paths, self.vectorize = num_paths, vectorize

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
        key_rows, key_paths = random.split(rng_key)
        rows = {"rng_seed": key_rows, "hide_types": ["sample", "prng_key", "control_flow"]}
        keys = random.split(key_paths, self.num_paths)
        same_rows, seeded = handlers.seed(model, **rows), handlers.seed(guide, **rows)

        def loss(key: PRNGKey) -> Array:
            one: Any = _ONE_PATH.loss(key, param_map, same_rows, seeded, *args, **kwargs)
            return one

        return jnp.mean(self.vectorize_particles_fn(loss, keys))


def check_weights(caller: str, guide: Any) -> None:
    """Check that the guide's paths have importance weights.

    Raises:
        TypeError: if the guide is not a `Diffusion`.
    """
    if not isinstance(guide, Diffusion):
        raise TypeError(
            f"{caller}: guide is a {type(guide).__name__}, wanted a Diffusion, whose paths have "
            "importance weights"
        )


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
