"""Equinox modules whose arrays are params of a guide."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jax import random
from jaxtyping import Array

from dgp_ppl._typing import PRNGKey

__all__ = ["is_maker", "module_params"]


def is_maker(value: Any) -> bool:
    """Return whether a callable makes a module from a random key, rather than being one."""
    # The key must be required: many equinox modules have key=None in their call.
    if not callable(value):
        return False
    key = inspect.signature(value).parameters.get("key")
    return key is not None and key.default is key.empty


def module_params(what: str, module: Any, name: str, *, made: bool = False) -> tuple[Any, Any]:
    """Declare each array of a module as a param.

    Args:
        what: the argument that holds the module, for errors.
        module: the module if it is `made`, else a function from a random key to it.
        name: prefix of the params' names, ``NAME.PATH``.
        made: whether the module is given, with its arrays as initial values.

    Returns:
        The module's arrays, and its static part; `equinox.combine` joins them.

    Raises:
        TypeError: if an array does not hold floating-point numbers.
    """
    if made:
        arrays, static = eqx.partition(module, eqx.is_array)
        shapes, make = arrays, lambda _: arrays
    else:
        shapes, static = eqx.partition(eqx.filter_eval_shape(module, random.key(0)), _is_shape)
        make = jax.jit(lambda key: eqx.filter(module(key), eqx.is_array))
    if wrong := {str(a.dtype) for a in jax.tree.leaves(shapes) if not _is_real(a)}:
        raise TypeError(
            f"{what} has arrays of {sorted(wrong)}, which cannot be learned; wanted "
            "floating-point arrays; make the others NumPy arrays or static fields, or pass what "
            "the function makes in place of the function"
        )
    initial: list[list[Array]] = []

    def start(i: int, key: PRNGKey) -> Array:
        if not initial:  # make all arrays at once, and only if some params have no value yet
            initial.append(jax.tree.leaves(make(key)))
        return initial[0][i]

    paths, treedef = jax.tree_util.tree_flatten_with_path(shapes)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    values = [
        numpyro.param(f"{name}.{n}" if n else name, partial(start, i)) for i, n in enumerate(names)
    ]
    return jax.tree.unflatten(treedef, values), static


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
