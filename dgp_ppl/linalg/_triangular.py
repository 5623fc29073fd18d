"""Cholesky factors and inverses of triangular matrices, one after another where JAX needs it.

jaxlib 0.10.0 to 0.11.0 divide a batch of LAPACK calls among the threads of the pool that runs the
program, and wait for them in that pool. Two batches together can wait forever on two cores.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import lax
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float

from dgp_ppl.linalg._products import matmul
from dgp_ppl.linalg._small import MOST_ROWS, small_cholesky, small_inverse

_LEAF = 32  # most rows of a block that is inverted by masks
_WAITS_FOREVER = (0, 10, 0) <= jaxlib.version.__version_info__ < (0, 11, 1)


def cholesky(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Return the lower Cholesky factor of a symmetric matrix; NaN in it if there is none."""
    on_cpu = _cholesky_one_by_one if _WAITS_FOREVER else _cholesky
    elsewhere = small_cholesky if len(K) <= MOST_ROWS else _cholesky
    return lax.platform_dependent(K, cpu=on_cpu, default=elsewhere)


def _cholesky(K: Array) -> Array:
    return lax.linalg.cholesky(K, symmetrize_input=False)


_cholesky_one_by_one = sequential_vmap(_cholesky)


@jax.custom_jvp
def triangular_inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Return the inverse of a lower-triangular matrix; `jax.vmap` does it for several.

    >>> import jax.numpy as jnp
    >>> triangular_inverse(jnp.array([[2.0, 0.0], [1.0, 4.0]])).tolist()
    [[0.5, 0.0], [-0.125, 0.25]]
    """
    return inverse_by_blocks(L)


@triangular_inverse.defjvp
def _triangular_inverse_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
    inverse = triangular_inverse(*primals)
    return inverse, -matmul(inverse, matmul(jnp.tril(tangents[0]), inverse))


def inverse_by_blocks(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Invert a lower-triangular matrix, without a rule for derivatives.

    On a CPU these are products of blocks. JAX's triangular solve calls OpenBLAS on a CPU. Its
    second thread keeps spinning for about 15 ms after a call and takes a core away from XLA, which
    costs more than the rest of a step with M = 100.
    """
    elsewhere = small_inverse if len(L) <= MOST_ROWS else _inverse_by_solve
    return lax.platform_dependent(L, cpu=_inverse_by_products, default=elsewhere)


def _inverse_by_solve(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    eye = jnp.eye(len(L), dtype=L.dtype)
    return lax.linalg.triangular_solve(L, eye, left_side=True, lower=True)


def _inverse_by_products(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Invert by [A, 0; C, B]⁻¹ = [A⁻¹, 0; -B⁻¹ C A⁻¹, B⁻¹], from single entries up."""
    M = len(L)
    levels = max(0, (-(-M // _LEAF) - 1).bit_length())
    size = -(-M // 2**levels)
    total = size * 2**levels
    padded = jnp.pad(L, (0, total - M)) + np.diag((np.arange(total) >= M).astype(L.dtype))
    blocks = [padded[i : i + size, i : i + size] for i in range(0, total, size)]
    inverse = _inverse_by_masks(jnp.stack(blocks))
    while size < total:
        starts = range(0, total, 2 * size)
        below = jnp.stack([padded[i + size : i + 2 * size, i : i + size] for i in starts])
        first, second = inverse[0::2], inverse[1::2]
        corner = -matmul(second, matmul(below, first))
        above = jnp.pad(first, ((0, 0), (0, 0), (0, size)))
        inverse = jnp.concatenate([above, jnp.concatenate([corner, second], -1)], -2)
        size *= 2
    return inverse[0, :M, :M]


def _inverse_by_masks(L: Float[Array, "B M M"]) -> Float[Array, "B M M"]:
    """Invert small matrices: from inverses X of blocks to blocks of twice the size, X - X C X."""
    i = np.arange(L.shape[-1])
    start = jnp.eye(len(i), dtype=L.dtype)[None] / jnp.diagonal(L, axis1=-2, axis2=-1)[..., None]

    def double(level: Array, inverse: Array) -> Array:
        number = i >> level  # of the block of each row
        below = (number[:, None] == number[None] + 1) & (number[:, None] & 1 == 1)
        return inverse - matmul(inverse, matmul(jnp.where(below[None], L, 0.0), inverse))

    return lax.fori_loop(0, (len(i) - 1).bit_length(), double, start)  # compiled once for all sizes
