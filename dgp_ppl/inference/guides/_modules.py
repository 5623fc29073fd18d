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


def is_maker(value: Any) -> bool:
    """Return whether a callable makes a module from a random key, rather than being one."""
    # The key must be required: many equinox modules have key=None in their call.
    if not callable(value):
        return False
    key = inspect.signature(value).parameters.get("key")
    return key is not None and key.default is key.empty


def module_params(
    what: str, module: Any, name: str, *args: Any, key: PRNGKey | None = None
) -> tuple[Any, Any]:
    """Declare each array of a module as a param ``NAME.PATH``; return its arrays and the rest.

    `module` is one with initial values or a maker, see `is_maker`, which takes `args` and the key.
    Errors call it `what`. `equinox.combine` joins both parts.
    """
    if is_maker(module):
        made = eqx.filter_eval_shape(lambda key: module(*args, key=key), random.key(0))
        shapes, static = eqx.partition(made, lambda a: isinstance(a, jax.ShapeDtypeStruct))
        make = jax.jit(lambda key: eqx.filter(module(*args, key=key), eqx.is_array))
    else:
        arrays, static = eqx.partition(module, eqx.is_array)
        shapes, make = arrays, lambda _: arrays
    types = {a.dtype for a in jax.tree.leaves(shapes)}
    if wrong := sorted(str(t) for t in types if not jnp.issubdtype(t, jnp.floating)):
        raise TypeError(
            f"{what} has arrays of {wrong}, which cannot be learned; wanted "
            "floating-point arrays; make other arrays NumPy arrays or static fields, or pass what "
            "the function makes instead of the function"
        )
    initial: list[list[Array]] = []

    def start(i: int, own: PRNGKey | None) -> Array:
        if not initial:  # make all arrays together, and only if some params have no value yet
            found = own if key is None else key
            if is_maker(module):
                found = required_key(what, found, f"{name}.*")
            initial.append(jax.tree.leaves(make(found)))
        return initial[0][i]

    paths, treedef = jax.tree_util.tree_flatten_with_path(shapes)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    values = [
        numpyro.param(f"{name}.{n}" if n else name, partial(start, i)) for i, n in enumerate(names)
    ]
    return jax.tree.unflatten(treedef, values), static


def required_key(what: str, key: PRNGKey | None, name: str) -> PRNGKey:
    """Return the key that initialises params. Without a key, all params must have values."""
    if key is None:
        raise ValueError(
            f"{what}: the params lack some of {name}, which this guide has; pass the params of a "
            "fit of this guide"
        )
    return key
