"""Stationary kernels: functions of the scaled distance between two inputs.

With r² = sum_d (x_d - z_d)² / l_d² a kernel is variance · g(r²). Its random features are cosines
with frequencies from its spectral density.

In float32, r² loses digits where three or more inputs span hundreds of lengthscales; see
`check_fit`'s line "float32".
"""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._typing import AnyArray, Inputs, OtherInputs, PRNGKey
from dgp_ppl.kernels._base import Features, Kernel
from dgp_ppl.kernels._scaled import Scaled
from dgp_ppl.linalg._products import computed_once, cosine, matmul

_FEW_INPUTS = 2  # whose differences cost no more time than a matrix product


def _squared_distance(x: Inputs, z: OtherInputs, lengthscale: ArrayLike) -> Array:
    """Return sum_d (x_d - z_d)² / l_d², [N, M].

    Of a few inputs it is a sum of squares. Of more the square is expanded so that the cost is one
    matrix product: digits cancel where the inputs span hundreds of lengthscales. Subtracting the
    centre of the smaller set first keeps a common shift of the inputs from costing digits. Only the
    smaller set is scaled by the lengthscale: its gradient and the lengthscale's gradient then share
    one product with the larger set, and no gradient with respect to the larger set is formed if it
    is data.
    """
    w = jnp.broadcast_to(1 / jnp.square(lengthscale), x.shape[-1:])[None]  # [1, D]
    smaller = x if len(x) < len(z) else z
    centre = jax.lax.stop_gradient(_centre(smaller))
    scaled_x, scaled_z = (w, 1.0) if smaller is x else (1.0, w)
    x, z = x - centre, z - centre
    if 0 < x.shape[1] <= _FEW_INPUTS:
        x, z = (a / jnp.broadcast_to(lengthscale, a.shape[1:])[None] for a in (x, z))
        first, *others = (jnp.square(a[:, None] - b[None]) for a, b in zip(x.T, z.T, strict=True))
        return sum(others, first)
    square = _square_norm(x, w)[:, None] + _square_norm(z, w)[None, :]
    cross = matmul(x * scaled_x, (z * scaled_z).T)
    square = computed_once(square - 2 * cross)
    # At least 0, with the derivatives of the square itself: maximum would halve them at 0.
    return square + jax.lax.stop_gradient(jnp.maximum(-square, 0.0))


def _centre(x: Inputs) -> Array:
    """Return the median of up to 15 rows, [1, D], which no outlier moves, in 3 µs."""
    some = x[:: -(-len(x) // 15)]
    order = jnp.arange(len(some))[:, None]
    one, other = some[:, None], some[None]
    before = (one < other) | ((one == other) & (order[:, None] < order[None]))
    middle = before.sum(axis=0) == len(some) // 2
    return jnp.where(middle, some, 0.0).sum(axis=0, keepdims=True)


def _square_norm(x: Inputs, w: Array) -> Array:
    """Return sum_d w_d x_d², [N]. In this form the gradient of w keeps x alone, not its squares."""
    return matmul(x * (x * w), jnp.ones_like(w[0]))


def _distance(square: Array) -> Array:
    """Return sqrt(r²), kept above 0 by rounding error so that its gradient stays finite."""
    return jnp.sqrt(jnp.maximum(square, jnp.finfo(square.dtype).eps))


def _below(square: Array) -> Array:
    """Return r² less the least one of `_distance`, where it is less: derivatives at 0 need it."""
    return jnp.minimum(square - jnp.finfo(square.dtype).eps, 0.0)


class _Stationary(Scaled, Kernel):
    """A kernel variance · g(r²), where r is the distance in units of the lengthscale."""

    initial: ClassVar[dict[str, float]] = {"variance": 1.0, "alpha": 1.0}
    variance: Any
    lengthscale: Any

    @abc.abstractmethod
    def _profile(self, square: Array) -> Array:
        """Return g(r²), where g(0) = 1."""

    @abc.abstractmethod
    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        """Draw from the spectral density at lengthscale 1, [num, dim]."""

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        self._check_width(x)
        if z is None:
            return jnp.broadcast_to(self.variance, x.shape[:1])
        return self.variance * self._profile(_squared_distance(x, z, self.lengthscale))

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        # Rahimi & Recht (2007): sqrt(2) cos(w'x + b), w from the spectral density, b uniform.
        key_w, key_b = random.split(key)
        omega = self._frequencies(key_w, num, dim) / jnp.atleast_2d(self.lengthscale)
        phase = random.uniform(key_b, (num,), maxval=2 * jnp.pi)
        return lambda x: jnp.sqrt(2 * self.variance) * cosine(matmul(x, omega.T) + phase[None])


class SquaredExponential(_Stationary):
    """The squared exponential (RBF) kernel, variance · exp(-r²/2). Its draws are smooth.

    Args:
        variance: prior variance of the function, in the square of its units, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
    """

    def _profile(self, square: Array) -> Array:
        return jnp.exp(-0.5 * square)

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        return random.normal(key, (num, dim))


class _Matern(_Stationary):
    """A Matern kernel. Its spectral density is a multivariate Student t with 2 nu dof."""

    _dof: ClassVar[float]

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        key_n, key_g = random.split(key)
        scale = jnp.sqrt(0.5 * self._dof / random.gamma(key_g, 0.5 * self._dof, (num, 1)))
        return random.normal(key_n, (num, dim)) * scale


class Matern12(_Matern):
    """The Matern-1/2 kernel, variance · exp(-r). Its draws are continuous but rough.

    In float32 the rounding of distances lowers k(x, x) by some 4e-4 of the variance, which acts as
    noise where inducing inputs and data coincide; in float64 (``jax_enable_x64``) it is 2e-8.

    Args:
        variance: prior variance of the function, in the square of its units, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
    """

    _dof: ClassVar[float] = 1.0

    def _profile(self, square: Array) -> Array:
        return jnp.exp(-_distance(square))


class Matern32(_Matern):
    """The Matern-3/2 kernel, variance · (1 + √3 r) exp(-√3 r). Its draws have one derivative.

    Args:
        variance: prior variance of the function, in the square of its units, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
    """

    _dof: ClassVar[float] = 3.0

    def _profile(self, square: Array) -> Array:
        r = math.sqrt(3) * _distance(square)
        return (1 + r) * jnp.exp(-r) - 3 / 2 * _below(square)


class Matern52(_Matern):
    """The Matern-5/2 kernel, variance · (1 + √5 r + 5r²/3) exp(-√5 r). Draws: two derivatives.

    Args:
        variance: prior variance of the function, in the square of its units, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
    """

    _dof: ClassVar[float] = 5.0

    def _profile(self, square: Array) -> Array:
        r = math.sqrt(5) * _distance(square)
        return (1 + r + jnp.square(r) / 3) * jnp.exp(-r) - 5 / 6 * _below(square)


class RationalQuadratic(_Stationary):
    """The rational quadratic kernel, variance · (1 + r² / (2 alpha))^(-alpha).

    It is a mixture of squared exponentials with different lengthscales.

    Args:
        variance: prior variance of the function, in the square of its units, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
        alpha: positive; the smaller, the more the lengthscales of the mixture differ, [].
    """

    alpha: Any

    def _profile(self, square: Array) -> Array:
        return jnp.exp(-self.alpha * jnp.log1p(square / (2 * self.alpha)))

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        # The inverse squared lengthscale of the mixture is Gamma(alpha, alpha).
        key_n, key_g = random.split(key)
        precision = random.gamma(key_g, self.alpha, (num, 1)) / self.alpha
        return random.normal(key_n, (num, dim)) * jnp.sqrt(precision)


class Periodic(Scaled, Kernel):
    """A periodic kernel, variance · exp(-½ sum_d sin²(π (x_d - z_d) / period) / l_d²).

    Args:
        variance: prior variance of the function, in the square of its units, [].
        lengthscale: a number without units, [D], or [] for all inputs.
        period: in the units of the inputs, [D] or [].

    Source: MacKay (1998), "Introduction to Gaussian processes".
    """

    initial: ClassVar[dict[str, float]] = {"variance": 1.0, "period": 1.0}
    variance: Any
    lengthscale: Any
    period: Any

    def _warp(self, x: AnyArray) -> Array:
        # sin²(a - b) is a quarter of |(cos 2a, sin 2a) - (cos 2b, sin 2b)|².
        angle = 2 * jnp.pi * x / self.period
        return 0.5 * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    def _warped(self, dim: int) -> SquaredExponential:
        lengthscale = jnp.broadcast_to(self.lengthscale, (dim,))
        return SquaredExponential(self.variance, jnp.concatenate([lengthscale, lengthscale]))

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        self._check_width(x)
        z = None if z is None else self._warp(z)
        return self._warped(x.shape[-1])(self._warp(x), z)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        phi = self._warped(dim).features(key, num, 2 * dim)
        return lambda x: phi(self._warp(x))
