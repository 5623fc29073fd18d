"""The only Cholesky factorisation, and the two products a sparse GP spends its time in.

Products run at `Precision.HIGHEST`: a GPU's reduced-precision default is fine for networks and
ruins the small differences that Gram matrices are made of.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float

__all__ = ["Factor", "default_jitter", "factorise", "matmul", "weighted_squares"]


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` at the highest precision the device has for its dtype."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def default_jitter(dtype: DTypeLike) -> float:
    """The jitter of a Gram matrix, as a fraction of its mean diagonal: eps^(2/3) / 16.

    Jitter j biases k(x, x) - k(x, Z) (K + jI)⁻¹ k(Z, x) by about j; rounding in the solve disturbs
    it by at most about eps / sqrt(j). The two are equal at j = eps^(2/3), but that is the worst
    case, and the bias is there always: on low-noise data it costs hundredths of a nat per datum. So
    start well below, at 1.5e-6 in float32 and 2.3e-12 in float64, and let `factorise` escalate.
    """
    return float(jnp.finfo(dtype).eps) ** (2 / 3) / 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Factor:
    """The Cholesky factor of K + jitter I, its inverse, and the jitter it took.

    Attributes:
        lower: L with L L' = K + jitter I, [M, M].
        inverse: L⁻¹, [M, M].
        jitter: what was added to the diagonal of K, in the units of K, [].
    """

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]
    jitter: Float[Array, ""]


def factorise(K: Float[Array, "M M"]) -> Factor:
    """Cholesky factor of a positive semi-definite matrix, with jitter that escalates.

    Starts from `default_jitter`. Where the factor is not finite, or where rounding has eaten the
    jitter (a squared pivot below a quarter of it), the jitter grows tenfold inside the compiled
    program until the factor is sound. A finite K always gets there: at ten times M the matrix is
    diagonally dominant. Values and gradients are then finite; the extra jitter is held constant in
    gradients. A K that is not finite gives a factor that is not finite.
    """
    dtype = K.dtype
    scale = jnp.trace(K) / K.shape[-1]
    base = default_jitter(dtype) * scale
    lower, inverse, extra = _factor(K + base * jnp.eye(K.shape[-1], dtype=dtype))
    return Factor(lower, inverse, base + extra)


@jax.custom_jvp
def _factor(K: Array) -> tuple[Array, Array, Array]:
    """L, L⁻¹ and the jitter that was added on top of what K already carries."""
    M = K.shape[-1]
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
    inverse = lax.linalg.triangular_solve(L, eye, left_side=True, lower=True)
    return L, inverse, extra * scale


@_factor.defjvp
def _factor_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    # dL = L Phi(L⁻¹ dK L⁻ᵀ), Phi = lower triangle with half the diagonal (Murray 2016, eq. 8);
    # with L⁻¹ at hand everything is a product. d(L⁻¹) = -L⁻¹ dL L⁻¹.
    (K,), (dK,) = primals, tangents
    L, inverse, jitter = _factor(K)
    phi = jnp.tril(matmul(matmul(inverse, dK), inverse.T))
    phi = phi - 0.5 * jnp.diag(jnp.diagonal(phi))
    return (L, inverse, jitter), (matmul(L, phi), -matmul(phi, inverse), jnp.zeros_like(jitter))


def weighted_squares(A: Float[Array, "M N"], R: Float[Array, "P M M"]) -> Float[Array, "P N"]:
    """a' (R R') a for every column a of A and every factor R: the variance that q(v) adds.

    This is where a deep GP's floating-point work goes. Forwards it is one product U = (R R') A per
    output; backwards U gives the gradient in A at no cost, and one more product, A diag(g) A',
    that in R. On a CPU the outputs are taken one after another, which keeps U in the cache.
    """
    if A.ndim == 3:
        return jax.vmap(_squares)(A, R)
    if jax.default_backend() == "cpu" and R.shape[0] > 1:
        return lax.scan(lambda _, r: (None, _squares(A, r)), None, R)[1]
    return jax.vmap(_squares, (None, 0))(A, R)


@jax.custom_jvp
def _squares(A: Array, R: Array) -> Array:
    """diag(A' R R' A), [N]."""
    return jnp.sum(matmul(matmul(R, R.T), A) * A, axis=0)


@_squares.defjvp
def _squares_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # With S = R R' symmetric, d(a'Sa) = 2 da'(Sa) + 2 a'(dR R')a.
    (A, R), (dA, dR) = primals, tangents
    U = matmul(matmul(R, R.T), A)
    tangent = jnp.sum(dA * U, axis=0) + jnp.sum(matmul(matmul(dR, R.T), A) * A, axis=0)
    return jnp.sum(U * A, axis=0), 2 * tangent
