"""The only Cholesky factorisation, and the two products a sparse GP spends its time in.

Products run at `Precision.HIGHEST`: a GPU's reduced-precision default is fine for networks and
ruins the small differences that Gram matrices are made of.
"""

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
    "factorise",
    "matmul",
    "precision_factor",
    "weighted_squares",
]


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` at the highest precision the device has for its dtype."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def as_float(a: ArrayLike) -> Array:
    """`a` as an array of floats: its own float dtype, or JAX's default for integers."""
    a = jnp.asarray(a)
    return a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(float)


def computed_once(value: Array) -> Array:
    """`value`, to be clamped: one array, however many of the compiler's fusions use it.

    XLA may compute a small difference anew in each fusion that needs it, each time with another
    rounding. A clamp's gradient is then on in one term and off in another, and terms that cancel
    do not: a multiple of the true gradient, seen on the diagonal of k(Z, Z).
    """
    return lax.optimization_barrier(value)


def default_jitter(dtype: DTypeLike) -> float:
    """The jitter of a Gram matrix, as a fraction of its mean diagonal: eps^(2/3) / 16.

    Jitter j biases k(x, x) - k(x, Z) (K + jI)⁻¹ k(Z, x) by about j; rounding in the solve disturbs
    it by at most about eps / sqrt(j). The two are equal at j = eps^(2/3), but that is the worst
    case, and the bias is there always: on low-noise data it costs hundredths of a nat per datum. So
    start well below, at 1.5e-6 in float32 and 2.3e-12 in float64, and let `factorise` escalate.
    """
    return float(jnp.finfo(dtype).eps) ** (2 / 3) / 16


class Factor(eqx.Module):
    """The Cholesky factor of K + jitter I, its inverse, and the jitter it took.

    Attributes:
        lower: L with L L' = K + jitter I, [M, M].
        inverse: L⁻¹, [M, M].
        jitter: what was added to the diagonal of K, in the units of K, [].
    """

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]
    jitter: Float[Array, ""]


def factorise(K: Float[Array, "M M"], jitter: float | None = None) -> Factor:
    """Cholesky factor of a positive semi-definite matrix, with jitter that escalates.

    Starts from `jitter`, a fraction of the mean diagonal, by default `default_jitter`. Where the
    factor is not finite, or where rounding has eaten the jitter (a squared pivot below a quarter of
    `default_jitter`), it grows tenfold inside the compiled program until the factor is sound. A
    finite K always gets there: at ten times M the matrix is diagonally dominant. Values and
    gradients are then finite; the extra jitter is held constant in gradients. A K that is not
    finite gives a factor that is not finite.
    """
    dtype = K.dtype
    scale = jnp.trace(K) / K.shape[-1]
    base = (default_jitter(dtype) if jitter is None else jitter) * scale
    lower, inverse, extra = _factor(K + base * jnp.eye(K.shape[-1], dtype=dtype))
    return Factor(lower, inverse, base + extra)


@jax.custom_jvp
def _factor(K: Array) -> tuple[Array, Array, Array]:
    """L, L⁻¹ and the jitter that was added on top of what K already carries."""
    M = len(K)
    eye = jnp.eye(M, dtype=K.dtype)
    scale = jnp.maximum(jnp.trace(K) / M, jnp.finfo(K.dtype).tiny)
    base = default_jitter(K.dtype)

    def attempt(extra: Array) -> tuple[Array, Array]:
        L = lax.linalg.cholesky(K + (extra * scale) * eye, symmetrize_input=False)
        pivots = jnp.square(jnp.diagonal(L))
        # Comparisons with NaN are False, so a factor that failed is not sound either.
        sound = jnp.all(pivots >= 0.25 * (base + extra) * scale) & jnp.all(jnp.isfinite(L))
        return L, sound

    def unsound(state: tuple[Array, Array, Array]) -> Array:
        extra, _, sound = state
        return ~sound & (extra < 10 * M)

    def escalate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # -1 (not tried yet), 0, 10 base, 100 base, ...: one factorisation in the program's text.
        extra = jnp.where(state[0] < 0, 0.0, jnp.maximum(10 * state[0], 10 * base))
        return (extra, *attempt(extra))

    start = (jnp.full((), -1, K.dtype), K, jnp.zeros((), bool))
    extra, L, _ = lax.while_loop(unsound, escalate, start)
    # One Newton step, from the left: A = L⁻¹ k(Z, x) is then as good as by a triangular solve.
    # Without it A can lose three digits, and k - A'A be far below zero.
    inverse = _inverse(L)
    refined = jnp.tril(inverse + matmul(eye - matmul(inverse, L), inverse))
    return L, refined, extra * scale


def precision_factor(A: Array, precision: Float[Array, "P N"]) -> Float[Array, "P M M"]:
    """C⁻¹ with C C' = I + A diag(precision) A', lower-triangular, for every output.

    A is [M, N], or [P, M, N] for outputs that differ. The matrix is I and more: it gets a jitter
    only where its trace is so large that rounding has eaten the I.
    """
    M = A.shape[-2]
    gram = matmul(A * precision[:, None, :], jnp.swapaxes(A, -1, -2))
    return jax.vmap(lambda K: _factor(K)[1])(gram + jnp.eye(M, dtype=A.dtype))


_BLOCK = 16  # the largest triangular system that OpenBLAS solves in one thread


def _inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L⁻¹ of a lower-triangular matrix.

    On a CPU by forward substitution, a block of rows at a time: X_i = L_ii⁻¹ (I_i - L_i X). JAX's
    triangular solve is OpenBLAS's there, whose second thread goes on spinning for some 15 ms after
    a call and takes a core from XLA: more than the rest of a step with M = 100.
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
        # Rows of X from the i-th on are still zero, so what stands at the block itself is too.
        rest = lax.dynamic_update_slice(-matmul(rows, X), eye, (0, i * b))
        return lax.dynamic_update_slice(X, matmul(inverse, rest), (i * b, 0))

    return lax.fori_loop(0, blocks, solve_rows, jnp.zeros((size, size), L.dtype))[:M, :M]


def _solve(L: Array, B: Array) -> Array:
    return lax.linalg.triangular_solve(L, B, left_side=True, lower=True)


@_factor.defjvp
def _factor_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    # dL = L Phi(L⁻¹ dK L⁻ᵀ), Phi = lower triangle with half the diagonal (Murray 2016, eq. 8);
    # with L⁻¹ at hand everything is a product. d(L⁻¹) = -L⁻¹ dL L⁻¹.
    (K,), (dK,) = primals, tangents
    L, inverse, jitter = _factor(K)
    phi = jnp.tril(matmul(matmul(inverse, dK), inverse.T))
    phi = phi - 0.5 * jnp.diag(jnp.diagonal(phi))
    return (L, inverse, jitter), (matmul(L, phi), -matmul(phi, inverse), jnp.zeros_like(jitter))


_GROUP = 2**19  # numbers of a group's U: 2 MB in float32
_MAX_GROUPS = 16  # each is a piece of the compiled program


def weighted_squares(A: Float[Array, "M N"], R: Float[Array, "P M M"]) -> Float[Array, "P N"]:
    """a' (R R') a for every column a of A and every factor R: the variance that q(v) adds.

    This is where a deep GP's floating-point work goes. Forwards it is one product U = (R R') A per
    output; backwards U gives the gradient in A at no cost, and one more product, A diag(g) A',
    that in R. On a CPU the outputs are taken a few at a time: enough for the products to run at
    full speed, few enough for U to stay in the cache. (A `lax.scan` over them costs half as much
    again as the same pieces written out.) A may also be [P, M, N], one per output.
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
    # Slice by slice: transposed, it is a plain sum over outputs.
    by_inputs = jnp.stack([jnp.sum(dA * U[p * M : (p + 1) * M], axis=0) for p in range(P)])
    by_factors = _column_sums(_stacked_product(dR, R, A), A, P)
    return _column_sums(U, A, P), 2 * (by_inputs + by_factors)


def _stacked_product(
    left: Float[Array, "P M M"], right: Float[Array, "P M M"], A: Float[Array, "M N"]
) -> Float[Array, "PM N"]:
    """left right' A for every output, one below the other: a single large product with A."""
    return matmul(matmul(left, jnp.swapaxes(right, -1, -2)).reshape(-1, len(A)), A)


def _column_sums(U: Float[Array, "PM N"], A: Float[Array, "M N"], P: int) -> Float[Array, "P N"]:
    """sum_m U[p, m, n] A[m, n]."""
    return jnp.sum(U.reshape(P, *A.shape) * A, axis=1)
