"""Natural gradients of Gaussians, as an optax transformation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from numpyro.distributions import biject_to, constraints

from dgp_ppl._typing import Params
from dgp_ppl.core._inducing import cholesky_factor
from dgp_ppl.linalg._products import diagonal, matmul
from dgp_ppl.linalg._triangular import cholesky, triangular_inverse

_LEAST = 0.1  # a covariance grows at most tenfold in a step
_FAR = 3.0  # prior standard deviations that a bounded step moves a mean at most
_COLUMNS = 8  # of a shared covariance, of which more would slow all of them down


def gaussian_pairs(params: Params) -> dict[str, str]:
    """Return the names of the means of Gaussians, and the names of their Cholesky factors.

    Other guides may transform factors of such names and shapes in another way.
    """
    found = [n for n in params if n == "auto_loc" or n.endswith(".v.loc")]
    factors = {n: f"{n.removesuffix('loc')}scale_tril" for n in found}
    is_array = lambda a: isinstance(a, jax.Array | np.ndarray)  # noqa: E731 - not optax's mask
    return {n: factor for n, factor in factors.items() if is_array(params.get(factor))}


def natural_gradient(
    step_size: Callable[[Any], Any], *, bounded: bool = False
) -> optax.GradientTransformation:
    """Return natural gradient descent of Gaussians with a Cholesky factor.

    The params are pairs NAME.loc [M, P] and NAME.scale_tril [P, M, M], or [M, M] for a covariance
    that all columns share, of `MeanField`; or `auto_loc` [D] and `auto_scale_tril` of NumPyro's
    `AutoMultivariateNormal` with its default prefix, whose steps are bounded. In a conjugate model
    a step of size 1 of `MeanField` reaches the optimum.

    Args:
        step_size: from the number of the step to its size, 0 to 1.
        bounded: whether the means of `MeanField` move by at most 3 prior standard deviations a
            step, and at a smaller rate where columns share a covariance. Under an exponential link
            a far step is one that the fit does not come back from.

    Source: Salimbeni et al. (2018), "Natural gradients in practice", equations 10 and 11.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Array]:
        moves, size = dict(updates), step_size(state)
        for loc, factor in gaussian_pairs(updates).items():
            given = params[loc], params[factor], updates[loc], updates[factor]
            move, moves[factor] = _moves(*given, size)
            if bounded and params[factor].ndim > 1:  # not of NumPyro's guide
                # A mean whose curvature is c times that of the shared covariance is stable if
                # size * c < 2, and c is at most the number of columns: seldom more than ten.
                columns = min(move.shape[1], _COLUMNS) if params[factor].ndim == 2 else 1
                move = move * jnp.minimum(1, 1.5 / (columns * size))
                move = move * jnp.minimum(1, _FAR / jnp.maximum(jnp.abs(move).max(), _FAR))
            moves[loc] = move
        return moves, state + 1

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


def _moves(loc: Array, raw: Array, by_loc: Array, by_raw: Array, size: Any) -> tuple[Any, Any]:
    """Return the changes of a mean and of its unconstrained factor.

    With S = L L' and G = dF/dS, a step of size g is S⁻¹ <- S⁻¹ + 2 g G = L⁻ᵀ B L⁻¹, B = I + g H,
    and the mean moves by -g S dF/dm with the new S. The gradient of F by the factor gives
    H = Phi + Phi', Phi = the lower triangle of L' dF/dL with half its diagonal.
    """
    is_vector = raw.ndim == 1  # of NumPyro's guide
    constraint = constraints.scaled_unit_lower_cholesky if is_vector else cholesky_factor
    transform: Any = biject_to(constraint)
    lower = transform(raw)
    # F depends on L through raw(L): the cotangent of the inverse transform is dF/dL.
    (by_lower,) = jax.vjp(transform.inv, lower)[1](by_raw)
    M = lower.shape[-1]
    means, L, dL = by_loc.reshape(M, -1).T, lower.reshape(-1, M, M), by_lower.reshape(-1, M, M)
    phi = jnp.tril(matmul(jnp.swapaxes(L, -1, -2), jnp.tril(dL)))
    H = (jnp.tril(phi, -1) + jnp.swapaxes(phi, -1, -2)) * (len(L) / len(means))  # of each column
    if is_vector:  # the gradient is of a few draws: far from the optimum it is mostly noise
        white = matmul(jnp.swapaxes(L, -1, -2), means[:, :, None])
        far = jnp.sqrt(jnp.sum(jnp.square(H)) + jnp.sum(jnp.square(white)))
        size = jnp.minimum(size, 1 / jnp.maximum(far, 1e-30))
    eye = jnp.eye(M, dtype=L.dtype)[None]
    # B may have negative eigenvalues, if the likelihood is not log-concave or G is noisy. Then take
    # a smaller step of a second-order form, (I + (I + g H)²) / 2, whose eigenvalues are above 1/2.
    norm = jnp.sqrt(jnp.sum(jnp.square(H), (-1, -2), keepdims=True))
    short = eye + jnp.minimum(size, 1 / jnp.maximum(norm, 1e-30)) * H
    both = jnp.concatenate([eye + size * H, 0.5 * (eye + matmul(short, short))])
    upper = jnp.flip(jax.vmap(cholesky)(jnp.flip(both, (-1, -2))), (-1, -2))  # B = U U'
    plain, careful = jnp.split(upper, 2)
    sound = jnp.all(jnp.square(diagonal(plain)) > _LEAST, axis=-1)[:, None, None]  # NaN is not
    U = jnp.where(sound, plain, careful)
    new = matmul(L, jax.vmap(triangular_inverse)(jnp.swapaxes(U, -1, -2)))
    by_white = jnp.sum(new * means[:, :, None], axis=1)  # new' dF/dm of each column
    move = -size * jnp.sum(new * by_white[:, None, :], axis=2).T.reshape(loc.shape)
    change = transform.inv(new.reshape(lower.shape)) - raw
    change = change if is_vector else jnp.tril(change)
    fine = jnp.isfinite(move).all() & jnp.isfinite(change).all()
    return jnp.where(fine, move, 0.0), jnp.where(fine, change, 0.0)
