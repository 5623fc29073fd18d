"""Programs in float64 in a process whose JAX has 32 bits."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dgp_ppl._checks import is_traced

_FACTORS_IN_SINGLE = contextvars.ContextVar("factors in single", default=False)


def double(tree: Any) -> Any:
    """Return a tree with its arrays of floats in float64; call it within `jax.enable_x64`."""

    def wide(a: Any) -> Any:
        if not _is_float(a):
            return a
        # NumPy's conversion compiles nothing.
        return a.astype(np.float64) if is_traced(a) else jnp.asarray(np.asarray(a, np.float64))

    return jax.tree.map(wide, tree)


def single(tree: Any) -> Any:
    """Return a tree of arrays in JAX's default precision."""

    def narrow(a: Any) -> Any:
        if jnp.issubdtype(jnp.result_type(a), jax.dtypes.prng_key):
            return a
        if is_traced(a):
            return lax.convert_element_type(a, jax.dtypes.canonicalize_dtype(a.dtype))
        return jnp.asarray(np.asarray(a))

    return jax.tree.map(narrow, tree)


def in_precision_of_argument(
    *positions: int, unless: Callable[[Any], bool] = lambda found: False
) -> Callable[[Any], Any]:
    """Decorate a program to compute in float64 if all floats of these arguments are float64.

    Params of one precision are wrong in the other: v is whitened by a factor whose jitter depends
    on it. So `jax.jit` and others trace a part in float64 too. The first argument is static, and
    results are in JAX's default precision. Results that, by `unless`, cannot be converted are
    computed in it, with a warning. Where JAX has float64 and these are in float32, only the
    factors of v are in float32.
    """

    def decorate(program: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(program)
        def run(static: Any, *arrays: Any) -> Any:
            is_wide = jnp.result_type(float) == np.float64
            deciding = [arrays[position - 1] for position in positions]
            if is_wide and _dtypes(deciding) == {np.dtype(np.float32)}:
                token = _FACTORS_IN_SINGLE.set(True)
                try:
                    return program(static, *arrays)
                finally:
                    _FACTORS_IN_SINGLE.reset(token)
            if is_wide or not is_double(deciding):
                # Of a float64 fit, data that were rounded before are float64 from here on.
                return program(static, *(double(arrays) if is_double(deciding) else arrays))
            with jax.enable_x64(True):
                found = program(static, *double(arrays))
            if not unless(found):
                return single(found)
            if is_double(deciding[-1]):  # params; draws made by hand are often NumPy's
                warnings.warn(
                    "params are float64, and this likelihood is computed in float32, where q(v) "
                    "may mean another function, wanted jax.config.update('jax_enable_x64', True)",
                    stacklevel=2,
                )
            return program(static, *single(arrays))

        return run

    return decorate


def precision_of(tree: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which JAX has float64 if all floats of a tree are float64."""
    return jax.enable_x64(True) if is_double(tree) else contextlib.nullcontext()


def warn_if_wide(caller: str, params: Mapping[str, Any]) -> None:
    """Warn of means of v in float64 where JAX computes in float32, in which they mean others."""
    own = [a for n, a in params.items() if n.endswith(".v.loc") and np.any(a)]
    if own and is_double(own) and jnp.result_type(float) != np.float64:
        warnings.warn(
            f"{caller}: params are float64, and JAX computes in float32, where q(v) means another "
            "function: it is whitened by a factor with other jitter; wanted "
            "jax.config.update('jax_enable_x64', True), or params of a fit in float32",
            stacklevel=4,
        )


def factor_dtype() -> Any:
    """Return the dtype of factors of v if it is that of the params; None if of the inputs."""
    return np.float32 if _FACTORS_IN_SINGLE.get() else None


def is_double(tree: Any) -> bool:
    """Return whether all floats of a tree are float64."""
    return _dtypes(tree) == {np.dtype(np.float64)}


def _dtypes(tree: Any) -> set[np.dtype[Any]]:
    return {a.dtype for a in jax.tree.leaves(tree) if _is_float(a)}


def _is_float(value: Any) -> bool:
    is_array = isinstance(value, jax.Array | np.ndarray)
    return is_array and jnp.issubdtype(value.dtype, np.floating)
