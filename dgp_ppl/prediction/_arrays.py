"""Blocks of rows, and results in NumPy or, while a transformation traces them, in JAX."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array

from dgp_ppl._checks import bad_rows, is_traced

BLOCK = 32  # rows of the programs of predictions


def block(a: Any, start: int, size: int) -> Array:
    """Return so many rows of an array from one on; behind its end the last one is repeated."""
    rows = a[start : start + size]
    # NumPy compiles nothing for another number of rows.
    xp = namespace(rows)
    widths = [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1)
    return jnp.asarray(xp.pad(rows, widths, mode="edge"))


def namespace(*trees: Any) -> ModuleType:
    """Return `jax.numpy` if an array of these trees is traced, else `numpy`."""
    return jnp if is_traced(*trees) else np


def to_host(a: Any, dtype: DTypeLike | None = np.float64) -> Any:
    """Return NumPy's array in this dtype, or a traced array in JAX's default float dtype."""
    if is_traced(a):
        return a if dtype is None else jnp.asarray(a, float)
    return np.asarray(a, dtype)


def check_no_nan(caller: str, missing: np.ndarray) -> None:
    """Raise if an entry of y that counts is NaN."""
    if missing.any():
        raise ValueError(
            f"{caller}: y is NaN in {bad_rows(missing)}, wanted numbers; leave missing targets out"
            f"{' by mask=~np.isnan(y)' if caller == 'log_prob' else ''}"
        )
