"""Paths of a diffusion guide, from noise to the posterior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._checks import GivenParams, check_count, check_key, params_of
from dgp_ppl._partition import Call
from dgp_ppl._typing import Fitted, Params, PRNGKey
from dgp_ppl.inference.guides._transport import from_reference
from dgp_ppl.inference.guides.diffusion._guide import PREFIX, Diffusion

__all__ = ["diffusion_paths"]


def diffusion_paths(
    key: PRNGKey,
    guide: Diffusion,
    params: Params | Fitted,
    *args: Any,
    num_paths: int = 100,
    **kwargs: Any,
) -> dict[str, Array]:
    """Draw paths of a `Diffusion` guide: the inducing values after each denoising step.

    The last states are the draws of ``guide.sample_posterior(key, params, *args,
    sample_shape=(num_paths,), **kwargs)``. The first states are noise. Under the default schedules
    they are N(0, I) in the base's reference space, so v has the base's distribution (the prior with
    ``base="prior"``). `dgp_ppl.plots.diffusion_paths` draws the result::

        paths = diffusion_paths(key, guide, result.params, x, y)
        plots.diffusion_paths(paths)

    Args:
        key: random key.
        guide: a `Diffusion` guide.
        params: the params of a fit, or its result.
        *args: positional arguments of the model.
        num_paths: number of paths S.
        **kwargs: keyword arguments of the model.

    Returns:
        The inducing values at the states x_K ... x_0 by site (such as ``l1.v``),
        [S, K + 1, M, P].

    Raises:
        TypeError: if the guide is not a `Diffusion`, if the base's mean has inducing inputs of
            its own (as `Decoupled` has), or if `num_paths` is not an integer.
        ValueError: if `num_paths` is not positive, or params lack one of the guide or have another
            shape of it.
    """
    check_key("diffusion_paths", key)
    if not isinstance(guide, Diffusion):
        raise TypeError(
            f"diffusion_paths: guide is {getattr(guide, '__name__', type(guide).__name__)}, "
            "wanted a Diffusion"
        )
    check_count("diffusion_paths", "num_paths", num_paths)
    guide.setup(*args, **kwargs)
    params = params_of("diffusion_paths", params)
    program = GivenParams(guide.recording_states(), params, "diffusion_paths")
    layers = guide.layers
    _, unravel = ravel_pytree({n: jnp.zeros(layer.shape) for n, layer in layers.items()})

    def path(key: PRNGKey) -> dict[str, Array]:
        sites: Any = handlers.trace(handlers.seed(program, key)).get_trace(*args, **kwargs)
        drawn = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        values = {n: s["value"] for n, s in drawn.items()}
        end = {n: values.pop(n) for n in layers}
        states = jax.vmap(unravel)(sites[f"{PREFIX}states"]["value"])
        v_of = lambda z: from_reference(guide.base, z, params, Call(args, kwargs, values))  # noqa: E731
        states = jax.lax.map(v_of, states)
        return {n: jnp.concatenate([states[n], end[n][None]]) for n in layers}

    return jax.jit(jax.vmap(path))(random.split(key, num_paths))
