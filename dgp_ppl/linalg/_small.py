"""Factors and inverses of small matrices, entry by entry.

On a GPU a call of a library ends the CUDA graph that the kernels around it are in. XLA makes few
kernels of the entries' arithmetic. The barriers keep it from writing this arithmetic into every
kernel that reads the results, which would more than double the time to compile a step.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

MOST_ROWS = 8  # the number of operations grows with the cube


def small_cholesky(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Return the lower Cholesky factor by the lower half of a matrix; NaN if there is none."""
    M = len(K)
    rows = jnp.arange(M)
    columns: list[Array] = []
    for j in range(M):
        rest = K[:, j] - sum(c * c[j] for c in columns)
        columns.append(jnp.where(rows >= j, rest / jnp.sqrt(rest[j]), 0.0))
    L = jnp.stack(columns, axis=1)
    return lax.optimization_barrier(jnp.where(jnp.all(jnp.diagonal(L) > 0), L, jnp.nan))


def small_inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Return the inverse of a lower-triangular matrix, without a rule for derivatives."""
    rows: list[Array] = []
    for i, unit in enumerate(jnp.eye(len(L), dtype=L.dtype)):
        rest = unit - sum(L[i, k] * row for k, row in enumerate(rows))
        rows.append(rest / L[i, i])
    return lax.optimization_barrier(jnp.stack(rows))
