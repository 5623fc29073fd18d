"""The directions that `SGHMC` moves along: the coordinates, or what warm-up has found."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from dgp_ppl.inference.samplers.sghmc._adaptation import Adaptation, Phase, averaging_rate
from dgp_ppl.inference.samplers.sghmc._dynamics import Flat

__all__ = ["Directions"]

_STEPS_PER_GRADIENT = 4  # successive gradients are correlated: so many count as one
_LEAST_SHRINKAGE = 1e-4  # keeps the Cholesky factor finite in float32
_TINY = 1e-30


class Directions(NamedTuple):
    """The directions that a chain moves along, each with a step size of its own.

    They are the columns of a matrix A. A step in their coordinates q moves the values by A q, and
    the slope along them is Aᵀ g. Warm-up chooses A with Aᵀ E[g gᵀ] A = I and Aᵀ V A diagonal, where
    V is the covariance of the gradient's noise. So the noise is uncorrelated along the directions,
    and one variance for each corrects it.
    """

    square: Float[Array, "d d"]  # average of g gᵀ over the estimation phase, [d, d]
    noise: Float[Array, "d d"]  # average of the noise's covariance, [d, d]
    # A, [d, d]. All three are [0, 0] where the directions are the coordinates.
    basis: Float[Array, "d d"]

    @staticmethod
    def init(gradient: Flat, dense: bool) -> Directions:
        """Return the directions of the coordinates; `dense` ones may change."""
        size = len(gradient) if dense else 0
        zeros = jnp.zeros((size, size), gradient.dtype)
        return Directions(zeros, zeros, jnp.eye(size, dtype=gradient.dtype))

    @property
    def dense(self) -> bool:
        return self.basis.shape[-1] > 0

    def start(self, position: Flat) -> Flat:
        """Return the coordinates q at which a step starts at these values."""
        return jnp.zeros_like(position) if self.dense else position

    def values(self, position: Flat, q: Flat) -> Flat:
        """Return the values at coordinates q of a step from `position`."""
        return position + self.basis @ q if self.dense else q

    def slope(self, gradient: Flat) -> Flat:
        """Return the gradient with respect to q."""
        return gradient @ self.basis if self.dense else gradient

    def averaged(
        self, phase: Phase, gradient: Flat, last_gradients: Float[Array, "2 d"]
    ) -> Directions:
        """Return the averages with a new gradient, given the last two, latest first."""
        rate = averaging_rate(phase)
        # As in `Adaptation`: independent noise of covariance V has a second difference of 6 V.
        second = gradient - 2 * last_gradients[0] + last_gradients[1]
        return self._replace(
            square=self.square + rate * (jnp.outer(gradient, gradient) - self.square),
            noise=self.noise + rate * (jnp.outer(second, second) / 6 - self.noise),
        )

    def found(self, adaptation: Adaptation, phase: Phase) -> tuple[Directions, Adaptation]:
        """Return the directions that the averages give, and the adaptation along them."""
        num = phase.averaged / _STEPS_PER_GRADIENT
        rms = jnp.sqrt(adaptation.mean_square)
        relative = jnp.sqrt(adaptation.noise_variance) / rms
        root = jnp.linalg.cholesky(_shrunk_correlation(self.square, num))
        noise = relative * _shrunk_correlation(self.noise, num) * relative[:, None]
        whitened = solve_triangular(root, noise, lower=True)
        whitened = solve_triangular(root, whitened.T, lower=True)
        variances, vectors = jnp.linalg.eigh(whitened)
        basis = solve_triangular(root, vectors, lower=True, trans="T") / rms[:, None]
        along = adaptation._replace(
            mean_square=jnp.ones_like(rms), noise_variance=jnp.maximum(variances, 0)
        )
        return self._replace(basis=basis), along


def _shrunk_correlation(covariance: Array, num: Array) -> Array:
    """Return correlations shrunk towards none, given a covariance of `num` independent vectors.

    The weight of no correlation has the least squared error, estimated (Schäfer & Strimmer
    2005), but never less than (d / num)², because d vectors or fewer make a singular matrix.
    """
    size = len(covariance)
    sd = jnp.sqrt(jnp.diag(covariance) + _TINY)
    eye = jnp.eye(size, dtype=covariance.dtype)
    found = covariance / jnp.outer(sd, sd) * (1 - eye)
    error = (jnp.sum(jnp.square(1 - jnp.square(found))) - size) / num
    weight = jnp.maximum(error / (jnp.sum(jnp.square(found)) + _TINY), (size / num) ** 2)
    return (1 - jnp.clip(weight, _LEAST_SHRINKAGE, 1)) * found + eye
