"""Programs in float64 in a process whose JAX has 32 bits."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgp_ppl._checks import is_traced

__all__ = ["double", "in_precision_of_argument", "precision_of", "single"]


def double(tree: Any) -> Any:
    """Return a tree with its arrays of floats in float64; call it within `jax.enable_x64`."""
    # NumPy's conversion compiles nothing.
    wide = lambda a: jnp.asarray(np.asarray(a, np.float64))  # noqa: E731
    return jax.tree.map(lambda a: wide(a) if _is_float(a) else a, tree)


def single(tree: Any) -> Any:
    """Return a tree of arrays in JAX's default precision."""
    is_key = lambda a: jnp.issubdtype(jnp.result_type(a), jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda a: a if is_key(a) else jnp.asarray(np.asarray(a)), tree)


def in_precision_of_argument(
    position: int, unless: Callable[[Any], bool] = lambda found: False
) -> Callable[[Any], Any]:
    """Decorate a program to compute in float64 if all floats of an argument are float64.

    The first argument is static. Results are in JAX's default precision. Traced programs stay as
    they are, as do programs whose results, by `unless`, cannot be converted.
    """

    def decorate(program: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(program)
        def run(static: Any, *arrays: Any) -> Any:
            if not _is_double(arrays[position - 1]) or is_traced(arrays):
                return program(static, *arrays)
            with jax.enable_x64(True):
                found = program(static, *double(arrays))
            return program(static, *single(arrays)) if unless(found) else single(found)

        return run

    return decorate


def precision_of(tree: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which JAX has float64 if all floats of a tree are float64."""
    return jax.enable_x64(True) if _is_double(tree) else contextlib.nullcontext()


def _is_double(tree: Any) -> bool:
    dtypes = {a.dtype for a in jax.tree.leaves(tree) if _is_float(a)}
    return dtypes == {np.dtype(np.float64)}


def _is_float(value: Any) -> bool:
    is_array = isinstance(value, jax.Array | np.ndarray)
    return is_array and jnp.issubdtype(value.dtype, np.floating)
