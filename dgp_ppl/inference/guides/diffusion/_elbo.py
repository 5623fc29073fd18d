"""The objective of the diffusion guide, and the importance weights of its paths."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import check_count
from dgp_ppl._partition import ComparedByFields
from dgp_ppl._typing import Model, Params, PRNGKey

_ONE_PATH = TraceMeanField_ELBO()


class DiffusionELBO(ComparedByFields, ELBO):
    """The evidence lower bound from several paths of a `Diffusion` guide.

    All paths share one minibatch. (NumPyro's ``num_particles`` draws a minibatch for each
    particle.) With one path it equals `TraceMeanField_ELBO`, which works with stock `SVI` too. It
    accepts any guide::

        guide = Diffusion(model)
        result = dgp.fit(key, model, guide, x, y, loss=DiffusionELBO(16))

    Args:
        num_paths: number of paths per step, which are computed in parallel.

    Raises:
        ValueError: if `num_paths` is not positive.
        TypeError: if it is not an integer.
    """

    def __init__(self, num_paths: int = 1) -> None:
        check_count("DiffusionELBO", "num_paths", num_paths)
        super().__init__(num_paths)
        self.num_paths = num_paths

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
