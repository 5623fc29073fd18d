"""Inverses of triangular matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from dgp_ppl.linalg._products import matmul

__all__ = ["inverse_by_blocks"]

_BLOCK = 16  # OpenBLAS solves triangular systems up to this size in one thread


def inverse_by_blocks(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Invert a lower-triangular matrix.

    On a CPU this is forward substitution by blocks of rows, X_i = L_ii⁻¹ (I_i - L_i X). JAX's
    triangular solve calls OpenBLAS on a CPU. Its second thread keeps spinning for about 15 ms after
    a call and takes a core away from XLA, which costs more than the rest of a step with M = 100.
    """
    if jax.default_backend() != "cpu":
        return _solve(L, jnp.eye(len(L), dtype=L.dtype))
    M, b = len(L), _BLOCK
    blocks = -(-M // b)
    size = blocks * b
    padding = jnp.diag((jnp.arange(size) >= M).astype(L.dtype))
    padded = jnp.pad(L, (0, size - M)) + padding
    eye = jnp.eye(b, dtype=L.dtype)

    def solve_rows(i: Array, X: Array) -> Array:
        rows = lax.dynamic_slice(padded, (i * b, 0), (b, size))
        inverse = _solve(lax.dynamic_slice(rows, (0, i * b), (b, b)), eye)
        # Rows of X from block i on are still zero, so the product is zero at the block itself.
        rest = lax.dynamic_update_slice(-matmul(rows, X), eye, (0, i * b))
        return lax.dynamic_update_slice(X, matmul(inverse, rest), (i * b, 0))

    return lax.fori_loop(0, blocks, solve_rows, jnp.zeros((size, size), L.dtype))[:M, :M]


def _solve(L: Array, B: Array) -> Array:
    return lax.linalg.triangular_solve(L, B, left_side=True, lower=True)
