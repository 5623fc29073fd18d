"""The products that dominate the cost of a sparse GP, with rules of their own for derivatives.

Products run at `Precision.HIGHEST`. A GPU's default precision suits neural networks, but it loses
the small differences between entries of a Gram matrix.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._typing import AnyArray


def matmul(a: AnyArray, b: AnyArray) -> Array:
    """Return ``a @ b`` at the highest precision that the device offers for the dtype."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def as_float(a: ArrayLike) -> Array:
    """Convert to an array of floats. A float dtype is kept; integers get JAX's default float."""
    a = jnp.asarray(a)
    return a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(float)


def deviation(var: Array) -> Array:
    """Return the standard deviation sqrt(var), with a derivative of 0 where the variance is 0.

    There the derivative of sqrt is infinite, and makes NaN of a variance that is 0 times another.
    """
    positive = var > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, var, 1.0)), 0.0)


def cosine(angle: Array) -> Array:
    """Return cos(angle): of float32 within 1e-7 (1 + |angle|), in a seventh of XLA's time."""
    if angle.dtype != jnp.float32:
        return jnp.cos(angle)
    of_square = np.polynomial.Chebyshev.interpolate(
        lambda s: np.cos(2 * np.pi * np.sqrt(s)), deg=8, domain=[0, 0.25]
    ).convert(kind=np.polynomial.Polynomial)
    turns = angle / (2 * np.pi)
    square, value = jnp.square(turns - jnp.round(turns)), jnp.zeros_like(angle)
    for coefficient in of_square.coef[::-1].tolist():  # weak: float32 stays so
        value = value * square + coefficient
    return value


@jax.custom_jvp
def diagonal(A: Float[Array, "*batch M M"]) -> Float[Array, "*batch M"]:
    """Return the diagonals of square matrices; the gradient is a mask, not a scatter."""
    return jnp.diagonal(A, axis1=-2, axis2=-1)


@diagonal.defjvp
def _diagonal_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
    (A,), (dA,) = primals, tangents
    return diagonal(A), jnp.sum(jnp.where(jnp.eye(A.shape[-1], dtype=bool), dA, 0.0), axis=-1)


def computed_once(value: Array) -> Array:
    """Return `value` behind an optimisation barrier, so that XLA computes it once.

    Use it for a small difference that is about to be clamped. Without the barrier, XLA may
    recompute the difference in each fusion, with different rounding. The clamp is then active in
    one term of the gradient and not in another, and terms that should cancel do not. On the
    diagonal of k(Z, Z) this gave a multiple of the true gradient.
    """
    return lax.optimization_barrier(value)


@jax.custom_jvp
def stored_gradient(value: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """Return `value`; XLA stores its gradient instead of recomputing it where it is used.

    Use it for a small result of large arrays, [N, P] from [P, M, N]. XLA fuses elementwise
    operations into the operations that read them, also across `optimization_barrier`. On a CPU it
    computed the unit noise of a hidden layer, which is part of the gradient of the layer's
    variance, again for every inducing input. It does not fuse a product of matrices, so the
    gradient is multiplied by the identity. (A gradient that is not finite for one output is then
    NaN for all outputs of that row.)
    """
    return value


@stored_gradient.defjvp
def _stored_gradient_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
    (value,), (change,) = primals, tangents
    return value, matmul(change, jnp.eye(change.shape[-1], dtype=change.dtype))


_GROUP = 2**19  # entries of U in a group: 2 MB in float32
_MAX_GROUPS = 16  # every group adds to the compiled program


def weighted_squares(
    A: Float[AnyArray, "M N"] | Float[AnyArray, "P M N"], R: Float[AnyArray, "P M M"]
) -> Float[Array, "P N"]:
    """Compute a' (R R') a for every column a of A and every factor R: the variance q(v) adds.

    Most of a deep GP's floating-point work is here. The forward pass is one product U = (R R') A
    per output. The backward pass reuses U for the gradient of A, and needs one more product,
    A diag(g) A', for the gradient of R. On a CPU the outputs are processed in groups: large enough
    for the products to run at full speed, small enough for U to stay in the cache. (A `lax.scan`
    over the groups takes 1.5 times as long as the unrolled loop.)

    Args:
        A: [M, N], or [P, M, N] if it differs between outputs.
        R: lower-triangular factors, [P, M, M].

    Returns:
        The variances, [P, N].
    """
    if A.ndim == 3:
        return jax.vmap(lambda a, r: _squares(a, r[None])[0])(A, R)
    return lax.platform_dependent(A, R, cpu=_squares_by_groups, default=_squares)


def _squares_by_groups(A: Float[Array, "M N"], R: Float[Array, "P M M"]) -> Float[Array, "P N"]:
    P, M = R.shape[:2]
    most = max(1, _GROUP // (M * A.shape[1]))
    groups = min(-(-P // most), _MAX_GROUPS)
    size = -(-P // groups)
    return jnp.concatenate([_squares(A, R[i : i + size]) for i in range(0, P, size)])


@jax.custom_jvp
def _squares(A: Float[Array, "M N"], R: Float[Array, "P M M"]) -> Float[Array, "P N"]:
    return _column_sums(_stacked_product(R, R, A), A, len(R))


@_squares.defjvp
def _squares_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # With S = R R' symmetric, d(a'Sa) = 2 da'(Sa) + 2 a'(dR R')a.
    (A, R), (dA, dR) = primals, tangents
    P, M = R.shape[:2]
    U = _stacked_product(R, R, A)
    # One slice at a time: the transpose is then a plain sum over outputs.
    by_inputs = jnp.stack([jnp.sum(dA * U[p * M : (p + 1) * M], axis=0) for p in range(P)])
    by_factors = _column_sums(_stacked_product(dR, R, A), A, P)
    return _column_sums(U, A, P), 2 * (by_inputs + by_factors)


def _stacked_product(
    left: Float[Array, "P M M"], right: Float[Array, "P M M"], A: Float[Array, "M N"]
) -> Float[Array, "PM N"]:
    """Return left right' A for all outputs, stacked by rows: a single large product with A."""
    return matmul(matmul(left, jnp.swapaxes(right, -1, -2)).reshape(-1, len(A)), A)


def _column_sums(U: Float[Array, "PM N"], A: Float[Array, "M N"], P: int) -> Float[Array, "P N"]:
    """Return sum_m U[p, m, n] A[m, n]."""
    return jnp.sum(U.reshape(P, *A.shape) * A[None], axis=1)
