"""Padded arrays, and results in NumPy or, while a transformation traces them, in JAX."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array

from dgp_ppl._checks import bad_rows, is_traced


def pad(a: Array, size: int) -> Array:
    """Extend an array to `size` rows by repeating the last one."""
    return jnp.pad(a, [(0, size - len(a))] + [(0, 0)] * (a.ndim - 1), mode="edge")


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
