"""The states of a diffusion guide's chains, from noise to posterior."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._checks import check_count
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.inference.guides._transport import from_reference
from dgp_ppl.inference.guides.diffusion._guide import PREFIX, Diffusion

__all__ = ["diffusion_paths"]


def diffusion_paths(
    key: PRNGKey,
    guide: Diffusion,
    params: Params,
    *args: Any,
    num_chains: int = 100,
    **kwargs: Any,
) -> dict[str, Array]:
    """Where a `Diffusion` guide's chains are at each of their steps.

    The last states are the draws of ``guide.sample_posterior(key, params, *args,
    sample_shape=(num_chains,), **kwargs)``. The first ones are noise: in the base's white space
    N(0, I) with the default schedules, so that v has the law of the base's fit (or, with
    ``base="prior"``, the prior's).

    Args:
        key: random key.
        guide: a `Diffusion` guide.
        params: the fit's params.
        *args: positional arguments of the model.
        num_chains: number of chains S.
        **kwargs: keyword arguments of the model.

    Returns:
        For every layer's site (``l1.v``, say) the inducing values of the states x_K ... x_0 of S
        chains of K steps, [S, K + 1, M, P].

    Raises:
        TypeError: if the guide is no `Diffusion`, its base's law has a basis of its own, or
            `num_chains` is no integer.
        ValueError: if `num_chains` is not positive.
    """
    if not isinstance(guide, Diffusion):
        raise TypeError(
            f"diffusion_paths: guide is {getattr(guide, '__name__', type(guide).__name__)}, "
            "wanted a Diffusion"
        )
    check_count("diffusion_paths", "num_chains", num_chains)
    guide.setup(*args, **kwargs)
    program = handlers.substitute(guide.keeping_states(), data=params)
    layers, call = guide.layers, (args, kwargs)
    _, unravel = ravel_pytree({n: jnp.zeros(layer.shape) for n, layer in layers.items()})

    def chain(key: PRNGKey) -> dict[str, Array]:
        sites: Any = handlers.trace(handlers.seed(program, key)).get_trace(*args, **kwargs)
        drawn = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        values = {n: s["value"] for n, s in drawn.items()}
        end = {n: values.pop(n) for n in layers}
        states = jax.vmap(unravel)(sites[f"{PREFIX}states"]["value"])
        v_of = lambda z: from_reference(guide.base, z, params, values, call)  # noqa: E731
        states = jax.lax.map(v_of, states)
        return {n: jnp.concatenate([states[n], end[n][None]]) for n in layers}

    return jax.jit(jax.vmap(chain))(random.split(key, num_chains))
