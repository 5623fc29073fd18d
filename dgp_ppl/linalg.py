"""The Cholesky factorisation with jitter, and the products that dominate the cost of a sparse GP.

Products run at `Precision.HIGHEST`. A GPU's default precision suits neural networks, but it loses
the small differences between entries of a Gram matrix.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

__all__ = [
    "Factor",
    "as_float",
    "computed_once",
    "default_jitter",
    "deviation",
    "factorise",
    "matmul",
    "precision_factor",
    "stored_gradient",
    "weighted_squares",
    "white_moments",
]


def matmul(a: Array, b: Array) -> Array:
    """Return ``a @ b`` at the highest precision that the device offers for the dtype.

    Args:
        a: [..., I, J].
        b: [..., J, K].

    Returns:
        The product, [..., I, K].
    """
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def as_float(a: ArrayLike) -> Array:
    """Convert to an array of floats. A float dtype is kept; integers get JAX's default float.

    Args:
        a: an array, or anything that JAX converts to one.
    """
    a = jnp.asarray(a)
    return a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(float)


def deviation(var: Array) -> Array:
    """Return the standard deviation sqrt(var), with a derivative of 0 where the variance is 0.

    There the derivative of sqrt is infinite, and makes NaN of a variance that is 0 times another.

    Args:
        var: variances of any shape, at least 0.
    """
    positive = var > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, var, 1.0)), 0.0)


def computed_once(value: Array) -> Array:
    """Return `value` behind an optimisation barrier, so that XLA computes it once.

    Use it for a small difference that is about to be clamped. Without the barrier, XLA may
    recompute the difference in each fusion, with different rounding. The clamp is then active in
    one term of the gradient and not in another, and terms that should cancel do not. On the
    diagonal of k(Z, Z) this gave a multiple of the true gradient.

    Args:
        value: any array.
    """
    return lax.optimization_barrier(value)


@jax.custom_jvp
def stored_gradient(value: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """Return `value`; XLA stores its gradient instead of recomputing it where it is used.

    Use it for a small result of large arrays, [N, P] from [P, M, N]. XLA fuses elementwise
    operations into the operations that read them, also across `optimization_barrier`. On a CPU it
    computed the unit noise of a hidden layer, which is part of the gradient of the layer's
    variance, anew for every inducing input. It does not fuse a product of matrices, so the
    gradient is multiplied by the identity. (A gradient that is not finite for one output is then
    NaN for all outputs of that row.)

    Args:
        value: [N, P].
    """
    return value


@stored_gradient.defjvp
def _stored_gradient_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
    (value,), (change,) = primals, tangents
    return value, matmul(change, jnp.eye(change.shape[-1], dtype=change.dtype))


def default_jitter(dtype: DTypeLike) -> float:
    """Return the first jitter that `factorise` tries: eps^(2/3) / 16 of the mean diagonal.

    A jitter j biases conditional variances by about j, and rounding disturbs them by at most about
    eps / sqrt(j). The two errors are equal at j = eps^(2/3). The default lies well below, because
    the bias is certain and the rounding error a worst case.

    Args:
        dtype: a floating-point dtype.

    Returns:
        1.5e-6 for float32 and 2.3e-12 for float64.
    """
    return float(jnp.finfo(dtype).eps) ** (2 / 3) / 16


class Factor(eqx.Module):
    """The Cholesky factor of K + jitter I, its inverse, and the jitter. Made by `factorise`.

    Attributes:
        lower: L with L L' = K + jitter I, [M, M].
        inverse: L⁻¹, [M, M].
        jitter: the value added to the diagonal of K, in the units of K, [].
        change: zeros with the derivative L⁻¹ dL, [M, M]. A rule of its own for the derivative of
            L⁻¹ B = A needs only this: dA = L⁻¹ dB - L⁻¹ dL A.
    """

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]
    jitter: Float[Array, ""]
    change: Float[Array, "M M"]


def factorise(
    K: Float[Array, "M M"], jitter: float | None = None, scale: ArrayLike | None = None
) -> Factor:
    """Factorise a positive semi-definite matrix, with as little jitter as rounding permits.

    The jitter grows tenfold, inside the compiled program, until the factor is finite and every
    squared pivot is at least a quarter of the jitter. Every finite K reaches such a factor, because
    at a jitter of 10 M the matrix is diagonally dominant. Values and gradients are then finite;
    gradients treat the jitter beyond the first as a constant. A K that is not finite gives a factor
    that is not finite.

    >>> import jax.numpy as jnp
    >>> factor = factorise(jnp.ones((3, 3)))
    >>> bool(jnp.allclose(factor.lower @ factor.lower.T, jnp.ones((3, 3)), atol=1e-5))
    True
    >>> bool(factor.jitter > 0)
    True

    Args:
        K: a symmetric matrix, [M, M].
        jitter: the first jitter to try, as a fraction of the scale; None takes `default_jitter`.
        scale: the size of the terms that K is a difference of, [], such as the mean prior variance
            of a posterior covariance: K has their rounding errors, and its own diagonal may be
            smaller than these. None, or anything smaller, takes the mean diagonal of K.

    Returns:
        L, L⁻¹ and the jitter that was needed.
    """
    dtype, size = K.dtype, jnp.trace(K) / K.shape[-1]
    size = size if scale is None else jnp.maximum(size, jnp.asarray(scale, dtype))
    base = (default_jitter(dtype) if jitter is None else jitter) * size
    K = K + base * jnp.eye(K.shape[-1], dtype=dtype)
    lower, inverse, extra, change = _factor(K, size)
    return Factor(lower, inverse, base + extra, change)


@jax.custom_jvp
def _factor(K: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """Return L, L⁻¹, the jitter added on top of the jitter that K already contains, and zeros."""
    M = len(K)
    eye = jnp.eye(M, dtype=K.dtype)
    scale = jnp.maximum(scale, jnp.finfo(K.dtype).tiny)
    base = default_jitter(K.dtype)

    def attempt(extra: Array) -> tuple[Array, Array]:
        L = lax.linalg.cholesky(K + (extra * scale) * eye, symmetrize_input=False)
        pivots = jnp.square(jnp.diagonal(L))
        # Comparisons with NaN are False, so a failed factorisation is not sound.
        sound = jnp.all(pivots >= 0.25 * (base + extra) * scale) & jnp.all(jnp.isfinite(L))
        return L, sound

    def unsound(state: tuple[Array, Array, Array]) -> Array:
        extra, _, sound = state
        return ~sound & (extra < 10 * M)

    def escalate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # -1 (not tried yet), 0, 10 base, 100 base, ...: the program contains one factorisation.
        extra = jnp.where(state[0] < 0, 0.0, jnp.maximum(10 * state[0], 10 * base))
        return (extra, *attempt(extra))

    start = (jnp.full((), -1, K.dtype), K, jnp.zeros((), bool))
    extra, L, _ = lax.while_loop(unsound, escalate, start)
    # One Newton step from the left makes A = L⁻¹ k(Z, x) as accurate as a triangular solve does.
    # Without it A can lose three digits, and k - A'A can fall far below zero.
    inverse = _inverse(L)
    refined = jnp.tril(inverse + matmul(eye - matmul(inverse, L), inverse))
    # The zeros depend on an argument, because `vmap` wants them batched like their tangent.
    return L, refined, extra * scale, extra * jnp.zeros_like(L)


def precision_factor(A: Array, precision: Float[Array, "P N"]) -> Float[Array, "P M M"]:
    """Return the lower-triangular C⁻¹ with C C' = I + A diag(precision) A' for every output.

    All eigenvalues of this matrix are at least 1. It needs jitter only if its trace is so large
    that rounding loses the I.

    Args:
        A: [M, N], or [P, M, N] if it differs between outputs.
        precision: the precision of every point, [P, N].

    Returns:
        C⁻¹, [P, M, M].
    """
    M = A.shape[-2]
    gram = matmul(A * precision[:, None, :], jnp.swapaxes(A, -1, -2))
    total = gram + jnp.eye(M, dtype=A.dtype)
    return jax.vmap(lambda K: _factor(K, jnp.trace(K) / M)[1])(total)


_BLOCK = 16  # OpenBLAS solves triangular systems up to this size in one thread


def _inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
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


@_factor.defjvp
def _factor_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # dL = L Phi(L⁻¹ dK L⁻ᵀ), Phi = lower triangle with half the diagonal (Murray 2016, eq. 8), and
    # d(L⁻¹) = -L⁻¹ dL L⁻¹. Both are products, because L⁻¹ is known.
    (K, scale), (dK, _) = primals, tangents
    L, inverse, jitter, change = _factor(K, scale)
    phi = jnp.tril(matmul(matmul(inverse, dK), inverse.T))
    phi = phi - 0.5 * jnp.diag(jnp.diagonal(phi))
    tangents_out = matmul(L, phi), -matmul(phi, inverse), jnp.zeros_like(jitter), phi
    return (L, inverse, jitter, change), tangents_out


def white_moments(
    factor: Factor,
    k: Float[Array, "P M N"],
    prior: Float[Array, "P N"],
    loc: Float[Array, "M P"],
    R: Float[Array, "P M M"],
) -> tuple[Float[Array, "P N"], Float[Array, "P N"]]:
    """Compute mean A'm and variance k(x, x) - A'A + A'R R'A of outputs with their own A = L⁻¹ k.

    The same could be written with `matmul` and `weighted_squares`. With a rule of its own, value
    and gradient together take four products of the size [M, M] x [M, N] for an output, instead of
    five: the gradients with respect to R and to k(Z, Z) share A diag(g) A'.

    The part k(x, x) - A'A is raised to `default_jitter` of k(x, x), because smaller values are
    rounding errors. Its gradient is that of the exact function, not zero.

    Args:
        factor: factors of k(Z, Z), stacked over outputs.
        k: k(Z, x), [P, M, N].
        prior: k(x, x), [P, N].
        loc: m, [M, P].
        R: lower-triangular factors, [P, M, M].

    Returns:
        Mean and variance, [P, N] each.
    """
    moments = jax.vmap(_white_moments, (0, 0, 0, 0, 1, 0))
    return moments(factor.inverse, factor.change, k, prior, loc, R)


@jax.custom_jvp
def _white_moments(
    inverse: Array, change: Array, k: Array, prior: Array, loc: Array, R: Array
) -> tuple[Array, Array]:
    return _white_moments_and_parts(inverse, k, prior, loc, R)[0]


def _white_moments_and_parts(
    inverse: Array, k: Array, prior: Array, loc: Array, R: Array
) -> tuple[tuple[Array, Array], Array, Array, Array]:
    """Return the moments, A, S = R R' - I and S A."""
    A = matmul(inverse, k)
    S = matmul(R, R.T) - jnp.eye(len(R), dtype=R.dtype)
    SA = matmul(S, A)
    explained = jnp.sum(jnp.square(A), axis=0)
    residual = jnp.maximum(prior - explained, default_jitter(A.dtype) * prior)
    posterior = jnp.maximum(explained + jnp.sum(A * SA, axis=0), 0.0)
    return (matmul(loc, A), residual + posterior), A, S, SA


@_white_moments.defjvp
def _white_moments_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    # dA = L⁻¹ dk - E A, where E = L⁻¹ dL is the derivative of `Factor.change`.
    inverse, _, k, prior, loc, R = primals
    _, E, dk, dprior, dloc, dR = tangents
    moments, A, S, SA = _white_moments_and_parts(inverse, k, prior, loc, R)
    dmean = matmul(dloc - matmul(loc, E), A) + matmul(matmul(loc, inverse), dk)
    Q = matmul(R, dR.T) - matmul(S, E)
    by_k = jnp.sum(matmul(inverse.T, SA) * dk, axis=0)
    dvar = dprior + 2 * (by_k + jnp.sum(A * matmul(Q, A), axis=0))
    return moments, (dmean, dvar)


_GROUP = 2**19  # entries of U in a group: 2 MB in float32
_MAX_GROUPS = 16  # every group adds to the compiled program


def weighted_squares(A: Float[Array, "M N"], R: Float[Array, "P M M"]) -> Float[Array, "P N"]:
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
    P, M = R.shape[:2]
    if A.ndim == 3:
        return jax.vmap(lambda a, r: _squares(a, r[None])[0])(A, R)
    if jax.default_backend() != "cpu":
        return _squares(A, R)
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
    return jnp.sum(U.reshape(P, *A.shape) * A, axis=1)
