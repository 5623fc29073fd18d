"""The log density of a normal distribution with a full covariance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dgp_ppl.linalg._products import matmul
from dgp_ppl.linalg._triangular import cholesky, inverse_by_blocks


@jax.custom_jvp
def normal_log_density(K: Float[Array, "N N"], y: Float[Array, " N"]) -> Float[Array, ""]:
    """Compute log N(y; 0, K) in nats; NaN if K has no Cholesky factor. It can be derived once.

    The gradient takes the inverse of K, three times the work of the factor.
    """
    return _density_and_parts(K, y)[0]


def _density_and_parts(K: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return the log density, K⁻¹ y and L⁻¹."""
    L = cholesky(K)
    inverse = inverse_by_blocks(L)
    white = matmul(inverse, y)
    log_det = jnp.sum(jnp.log(jnp.diagonal(L)))
    density = -0.5 * jnp.sum(jnp.square(white)) - log_det - 0.5 * len(y) * jnp.log(2 * jnp.pi)
    return density, matmul(white, inverse), inverse


@normal_log_density.defjvp
def _normal_log_density_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> Any:
    (K, y), (dK, dy) = primals, tangents
    density, solved, inverse = _density_and_parts(K, y)
    by_K = 0.5 * (jnp.outer(solved, solved) - matmul(inverse.T, inverse))
    return density, jnp.sum(by_K * dK) - jnp.sum(solved * dy)
