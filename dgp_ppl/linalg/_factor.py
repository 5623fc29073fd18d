"""The Cholesky factorisation with jitter, the inverse of the factor, and moments from both."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dgp_ppl._typing import AnyArray
from dgp_ppl.linalg._products import matmul
from dgp_ppl.linalg._triangular import cholesky, inverse_by_blocks


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
            L⁻¹ B = A needs only this: dA = L⁻¹ dB - L⁻¹ dL A. None for a grid, which has no rule.
    """

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]
    jitter: Float[Array, ""]
    change: Float[Array, "M M"] | None


def factorise(
    K: Float[Array, "M M"],
    jitter: float | None = None,
    scale: ArrayLike | None = None,
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
    dtype, size = K.dtype, _mean_diagonal(K)
    size = size if scale is None else jnp.maximum(size, jnp.asarray(scale, dtype))
    base = (default_jitter(dtype) if jitter is None else jitter) * size
    K = K + base * jnp.eye(K.shape[-1], dtype=dtype)
    lower, inverse, extra, change = _factor(K, size)
    return Factor(lower, inverse, base + extra, change)


_MOST_AT_ONCE = 1024  # rows of a matrix whose factors at all jitters are computed together


@jax.custom_jvp
def _factor(K: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """Return L, L⁻¹, the jitter added on top of the jitter that K already contains, and zeros."""
    M = len(K)
    eye = jnp.eye(M, dtype=K.dtype)
    scale = jnp.maximum(scale, jnp.finfo(K.dtype).tiny)
    base = default_jitter(K.dtype)

    def attempt(extra: Array) -> tuple[Array, Array]:
        L = cholesky(K + (extra * scale) * eye)
        pivots = jnp.diagonal(L)
        # A failed factorisation is NaN everywhere, and comparisons with NaN are False.
        large = jnp.square(pivots) >= 0.25 * (base + extra) * scale
        return L, jnp.all(large & jnp.isfinite(pivots))

    def one_by_one() -> tuple[Array, Array]:
        def unsound(state: tuple[Array, Array, Array]) -> Array:
            extra, _, sound = state
            return ~sound & (extra < 10 * M)

        def escalate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            # -1 (not tried yet), 0, 10 base, 100 base, ...: the program has one factorisation.
            extra = jnp.where(state[0] < 0, 0.0, jnp.maximum(10 * state[0], 10 * base))
            return (extra, *attempt(extra))

        start = (jnp.full((), -1, K.dtype), K, jnp.zeros((), bool))
        extra, L, _ = lax.while_loop(unsound, escalate, start)
        return extra, L

    def at_once() -> tuple[Array, Array]:
        extras = [np.zeros((), K.dtype), np.asarray(10 * base, K.dtype)]
        while extras[-1] < 10 * M:
            extras.append(10 * extras[-1])
        tries = jnp.stack(extras)
        L, sound = jax.vmap(attempt)(tries)
        first = jnp.where(jnp.any(sound), lax.argmax(sound, 0, np.int32), len(extras) - 1)
        return tries[first], L[first]

    # On a GPU every turn of the loop waits for the host. Factors of large matrices take longer.
    elsewhere = at_once if M <= _MOST_AT_ONCE else one_by_one
    extra, L = lax.platform_dependent(cpu=one_by_one, default=elsewhere)
    # One Newton step from the left makes A = L⁻¹ k(Z, x) as accurate as a triangular solve does.
    # Without it A can lose three digits, and k - A'A can fall far below zero.
    inverse = inverse_by_blocks(L)
    refined = jnp.tril(inverse + matmul(eye - matmul(inverse, L), inverse))
    # The zeros depend on an argument, because `vmap` wants them batched like their tangent.
    return L, refined, extra * scale, extra * jnp.zeros_like(L)


def precision_factor(A: Array, precision: Float[Array, "P N"]) -> Float[Array, "P M M"]:
    """Return the lower-triangular C⁻¹ with C C' = I + A diag(precision) A' for every output.

    A is [M, N], or [P, M, N] if it differs between outputs. All eigenvalues of this matrix are at
    least 1. It needs jitter only if its trace is so large that rounding loses the I.
    """
    M = A.shape[-2]
    each = A if A.ndim == 3 else A[None]
    gram = matmul(each * precision[:, None, :], jnp.swapaxes(A, -1, -2))
    total = gram + jnp.eye(M, dtype=A.dtype)[None]
    return jax.vmap(lambda K: _factor(K, _mean_diagonal(K))[1])(total)


def _mean_diagonal(K: Array) -> Array:
    """Return the mean of the diagonal, by one launch on a GPU; `jnp.trace` masks all of K first."""
    return jnp.mean(jnp.ravel(K)[:: len(K) + 1])


@_factor.defjvp
def _factor_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # dL = L Phi(L⁻¹ dK L⁻ᵀ), Phi = lower triangle with half the diagonal (Murray 2016, eq. 8), and
    # d(L⁻¹) = -L⁻¹ dL L⁻¹. Both are products, because L⁻¹ is known.
    (K, scale), (dK, _) = primals, tangents
    L, inverse, jitter, change = _factor(K, scale)
    whole = matmul(matmul(inverse, dK), inverse.T)
    phi = jnp.tril(whole) * (1 - 0.5 * jnp.eye(len(L), dtype=L.dtype))
    tangents_out = matmul(L, phi), -matmul(phi, inverse), jnp.zeros_like(jitter), phi
    return (L, inverse, jitter, change), tangents_out


def white_moments(
    factor: Factor,
    k: Float[Array, "P M N"],
    prior: Float[Array, "P N"],
    loc: Float[Array, "M P"],
    R: Float[AnyArray, "P M M"],
) -> tuple[Float[Array, "P N"], Float[Array, "P N"]]:
    """Compute mean A'm and variance k(x, x) - A'A + A'R R'A of outputs with their own A = L⁻¹ k.

    The same could be written with `matmul` and `weighted_squares`. With a rule of its own, value
    and gradient together take four products of the size [M, M] x [M, N] for an output, instead of
    five: the gradients with respect to R and to k(Z, Z) share A diag(g) A'.

    The part k(x, x) - A'A is raised to `default_jitter` of k(x, x), because smaller values are
    rounding errors. Its gradient is the exact function's, not zero.

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
