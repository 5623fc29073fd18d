"""Checks of a kernel's numbers: of their kind, and of their shapes."""

from __future__ import annotations

from numbers import Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._checks import as_array, check_kind, check_value
from dgp_ppl._typing import AnyArray, Inputs

_BY_INPUT = ("lengthscale", "period")


class Scaled(eqx.Module):
    """A kernel's positive numbers; those `_BY_INPUT` may have one for each input."""

    def __check_init__(self) -> None:
        kind, kinds = type(self).__name__, Real | np.ndarray | jax.Array
        for name, value in vars(self).items():
            check_kind(kind, name, value, kinds, "a number or an array of numbers")
            edge = name not in _BY_INPUT
            check_value(f"{kind}: {name}", value, constraints.positive, edge=edge)

    def _check_width(self, x: Inputs) -> None:
        check_kind(type(self).__name__, "x", x, AnyArray, "an array [N, D]")
        for name, value in vars(self).items():
            shape, by_input = jnp.shape(value), name in _BY_INPUT
            if shape not in ((), (1,)) and not (by_input and shape == x.shape[-1:]):
                wanted = f", or one for each of {x.shape[-1]} inputs" * by_input
                raise ValueError(
                    f"{type(self).__name__}: {name} has shape {shape}, wanted a number{wanted}; "
                    "for kernels by output take kernels.PerOutput"
                )


def start_value(what: str, given: Any, shape: tuple[int, ...], constraint: Any) -> Array:
    """Return a starting value in the shape of its param; raise unless it fits."""
    check_value(what, given, constraint)
    value = as_array(what, "the value", given)
    try:
        return jnp.broadcast_to(jnp.asarray(value, float), shape)
    except ValueError:
        raise ValueError(f"{what} has shape {value.shape}, wanted a number or {shape}") from None
