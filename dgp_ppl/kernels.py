"""Covariance functions.

A kernel is called as tinygp's are: ``k(x, z)`` is the matrix [N, M], ``k(x)`` the diagonal [N]. Any
callable that does so can stand in place of these. Every kernel here is an equinox module, and so a
pytree, and ``Kernel.learned(name, dim)`` registers its hyperparameters as NumPyro params
``name.variance``, ``name.lengthscale``, ..., so that `handlers.lift` can put priors on them.

`features` gives random features phi with E[phi_i(x) phi_i(z)] = k(x, z) for every i: what draws of
whole functions are made of (`RandomFunction.path`).
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._typing import Inputs, PRNGKey
from dgp_ppl.linalg import computed_once, matmul

__all__ = [
    "ArcCosine",
    "Covariance",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "PerOutput",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Separable",
    "SquaredExponential",
    "Sum",
]

Features = Callable[[Inputs], Float[Array, "N F"]]


class Covariance(Protocol):
    """What the library asks of a kernel; tinygp's kernels fit."""

    def __call__(self, x: Any, z: Any = None, /) -> Any: ...


class Kernel(eqx.Module):
    """A covariance function k. Kernels add and multiply: ``a + b``, ``a * b``."""

    initial: ClassVar[dict[str, float]] = {"variance": 1.0}

    @abc.abstractmethod
    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        """K(x, z), [N, M]; without z the diagonal of K(x, x), [N]."""

    @abc.abstractmethod
    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        """`num` independent random features, each unbiased for k: a function [N, dim] -> [N, num].

        A draw from the prior is ``features(x) @ w / sqrt(num)`` with w ~ N(0, I): its covariance is
        exactly k on average over the features, and it is Gaussian as `num` grows.
        """

    @classmethod
    def learned(
        cls,
        name: str,
        dim: int,
        *,
        out: int | None = None,
        ard: bool = True,
        **initial: ArrayLike,
    ) -> Any:
        """This kernel with its hyperparameters registered as positive NumPyro params.

        Args:
            name: prefix of the params: ``name.variance``, ``name.lengthscale``, ...
            dim: number of inputs D of the layer.
            out: give each of `out` outputs hyperparameters of its own (a `PerOutput` kernel).
            ard: one lengthscale per input (shape [D]) in place of one for all.
            **initial: starting values by hyperparameter name; the defaults are variance 1 and
                lengthscale sqrt(D), for inputs of unit scale.

        Raises:
            TypeError: for a hyperparameter this kernel does not have.
        """
        fields = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        unknown = sorted(set(initial) - set(fields))
        if unknown:
            raise TypeError(
                f"{cls.__name__}.learned got {unknown[0]!r}; its hyperparameters are {fields}"
            )
        values = {}
        for field in fields:
            shape = (dim,) if field == "lengthscale" and ard else ()
            shape = shape if out is None else (out, *shape)
            default = math.sqrt(dim) if field == "lengthscale" else cls.initial[field]
            start = jnp.broadcast_to(jnp.asarray(initial.get(field, default), float), shape)
            values[field] = numpyro.param(
                f"{name}.{field}", start, constraint=dist.constraints.positive
            )
        kernel = cls(**values)
        return kernel if out is None else PerOutput(kernel)

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum(self, other)

    def __mul__(self, other: "Kernel") -> "Product":
        return Product(self, other)


def _squared_distance(x: Array, z: Array, lengthscale: Array) -> Array:
    """sum_d (x_d - z_d)² / l_d², [N, M].

    Expanded, so that it is one product; about the mean of the smaller set, so that a common shift
    of the inputs costs no digits. Only the smaller set is scaled: its gradient and that of the
    lengthscale then share one product with the larger set, whose own gradient is never formed where
    it is data.
    """
    w = jnp.broadcast_to(1 / jnp.square(lengthscale), x.shape[-1:])
    few = x if len(x) < len(z) else z
    centre = jax.lax.stop_gradient(few.mean(axis=0))
    scaled_x, scaled_z = (w, 1.0) if few is x else (1.0, w)
    x, z = x - centre, z - centre
    square = _square_norm(x, w)[:, None] + _square_norm(z, w)[None, :]
    cross = matmul(x * scaled_x, (z * scaled_z).T)
    return jnp.maximum(computed_once(square - 2 * cross), 0.0)


def _square_norm(x: Array, w: Array) -> Array:
    """sum_d w_d x_d², [N]: multiplied so that w's gradient needs x alone, and keeps no squares."""
    return matmul(x * (x * w), jnp.ones_like(w))


class _Stationary(Kernel):
    """variance · g(r²) with r² the squared distance in units of the lengthscale."""

    initial: ClassVar[dict[str, float]] = {"variance": 1.0, "alpha": 1.0}
    variance: Any
    lengthscale: Any

    @abc.abstractmethod
    def _profile(self, square: Array) -> Array:
        """g(r²), with g(0) = 1."""

    @abc.abstractmethod
    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        """Draws from the spectral density at lengthscale 1, [num, dim]."""

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        if z is None:
            return jnp.broadcast_to(self.variance, x.shape[:1])
        return self.variance * self._profile(_squared_distance(x, z, self.lengthscale))

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        # Bochner; Rahimi & Recht (2007): sqrt(2) cos(w'x + b), b uniform.
        key_w, key_b = random.split(key)
        omega = self._frequencies(key_w, num, dim) / self.lengthscale
        phase = random.uniform(key_b, (num,), maxval=2 * jnp.pi)
        return lambda x: jnp.sqrt(2 * self.variance) * jnp.cos(matmul(x, omega.T) + phase)


def _distance(square: Array) -> Array:
    """sqrt(r²), bounded away from 0 by rounding so that its gradient stays finite."""
    return jnp.sqrt(jnp.maximum(square, jnp.finfo(square.dtype).eps))


def _student_frequencies(key: PRNGKey, num: int, dim: int, dof: float) -> Array:
    """Spectral density of the Matern family: a multivariate Student t with 2 nu dof."""
    key_n, key_g = random.split(key)
    scale = jnp.sqrt(0.5 * dof / random.gamma(key_g, 0.5 * dof, (num, 1)))
    return random.normal(key_n, (num, dim)) * scale


class SquaredExponential(_Stationary):
    """variance · exp(-r²/2)."""

    variance: Any
    lengthscale: Any

    def _profile(self, square: Array) -> Array:
        return jnp.exp(-0.5 * square)

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        return random.normal(key, (num, dim))


class Matern12(_Stationary):
    """variance · exp(-r)."""

    variance: Any
    lengthscale: Any

    def _profile(self, square: Array) -> Array:
        return jnp.exp(-_distance(square))

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        return _student_frequencies(key, num, dim, 1.0)


class Matern32(_Stationary):
    """variance · (1 + √3 r) exp(-√3 r)."""

    variance: Any
    lengthscale: Any

    def _profile(self, square: Array) -> Array:
        r = math.sqrt(3) * _distance(square)
        return (1 + r) * jnp.exp(-r)

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        return _student_frequencies(key, num, dim, 3.0)


class Matern52(_Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(-√5 r)."""

    variance: Any
    lengthscale: Any

    def _profile(self, square: Array) -> Array:
        r = math.sqrt(5) * _distance(square)
        return (1 + r + jnp.square(r) / 3) * jnp.exp(-r)

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        return _student_frequencies(key, num, dim, 5.0)


class RationalQuadratic(_Stationary):
    """variance · (1 + r² / (2 alpha))^(-alpha)."""

    variance: Any
    lengthscale: Any
    alpha: Any

    def _profile(self, square: Array) -> Array:
        return jnp.exp(-self.alpha * jnp.log1p(square / (2 * self.alpha)))

    def _frequencies(self, key: PRNGKey, num: int, dim: int) -> Array:
        # A squared exponential whose inverse squared lengthscale is Gamma(alpha, alpha).
        key_n, key_g = random.split(key)
        precision = random.gamma(key_g, self.alpha, (num, 1)) / self.alpha
        return random.normal(key_n, (num, dim)) * jnp.sqrt(precision)


class Periodic(Kernel):
    """variance · exp(-½ sum_d sin²(π (x_d - z_d) / period) / l_d²), MacKay (1998)."""

    initial: ClassVar[dict[str, float]] = {"variance": 1.0, "period": 1.0}
    variance: Any
    lengthscale: Any
    period: Any

    def _warp(self, x: Array) -> Array:
        # sin²(a - b) is a quarter of the squared distance of (cos 2a, sin 2a) and (cos 2b, sin 2b).
        angle = 2 * jnp.pi * x / self.period
        return 0.5 * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    def _warped(self, dim: int) -> SquaredExponential:
        lengthscale = jnp.broadcast_to(self.lengthscale, (dim,))
        return SquaredExponential(self.variance, jnp.concatenate([lengthscale, lengthscale]))

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        z = None if z is None else self._warp(z)
        return self._warped(x.shape[-1])(self._warp(x), z)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        phi = self._warped(dim).features(key, num, 2 * dim)
        return lambda x: phi(self._warp(x))


class Linear(Kernel):
    """sum_d variance · x_d z_d / l_d²: Bayesian linear regression through the origin."""

    variance: Any
    lengthscale: Any

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        if z is None:
            return self.variance * jnp.sum(jnp.square(x / self.lengthscale), axis=-1)
        return self.variance * matmul(x / self.lengthscale, (z / self.lengthscale).T)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        slope = random.normal(key, (num, dim)) / self.lengthscale
        return lambda x: jnp.sqrt(self.variance) * matmul(x, slope.T)


class ArcCosine(Kernel):
    """The kernel of an infinitely wide ReLU layer, order 1 (Cho & Saul 2009, eq. 1 and 7).

    variance / π · |x̃||z̃| (sin θ + (π - θ) cos θ), with x̃ = (x / l, bias).
    """

    initial: ClassVar[dict[str, float]] = {"variance": 1.0, "bias": 1.0}
    variance: Any
    lengthscale: Any
    bias: Any

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        bias = jnp.square(self.bias)
        norm_x = jnp.sqrt(jnp.sum(jnp.square(x / self.lengthscale), axis=-1) + bias)
        if z is None:
            return self.variance * jnp.square(norm_x)
        norm_z = jnp.sqrt(jnp.sum(jnp.square(z / self.lengthscale), axis=-1) + bias)
        norms = norm_x[:, None] * norm_z[None, :]
        inner = matmul(x / self.lengthscale, (z / self.lengthscale).T) + bias
        # arccos has an infinite slope at ±1, where the product has none: stay off it by rounding.
        bound = 1 - jnp.finfo(norms.dtype).eps
        cosine = jnp.clip(computed_once(inner / norms), -bound, bound)
        angle = jnp.arccos(cosine)
        sine = jnp.sqrt(1 - jnp.square(cosine))
        return self.variance / jnp.pi * norms * (sine + (jnp.pi - angle) * cosine)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        key_w, key_b = random.split(key)
        slope = random.normal(key_w, (num, dim)) / self.lengthscale
        offset = self.bias * random.normal(key_b, (num,))
        scale = jnp.sqrt(2 * self.variance)
        return lambda x: scale * jax.nn.relu(matmul(x, slope.T) + offset)


class Sum(Kernel):
    """k1 + k2."""

    first: Any
    second: Any

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        return self.first(x, z) + self.second(x, z)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        # A random sign per feature: the cross terms vanish on average.
        key_a, key_b, key_s = random.split(key, 3)
        a, b = self.first.features(key_a, num, dim), self.second.features(key_b, num, dim)
        sign = random.rademacher(key_s, (num,), dtype=float)
        return lambda x: a(x) + sign * b(x)


class Product(Kernel):
    """k1 · k2."""

    first: Any
    second: Any

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        return self.first(x, z) * self.second(x, z)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        key_a, key_b = random.split(key)
        a, b = self.first.features(key_a, num, dim), self.second.features(key_b, num, dim)
        return lambda x: a(x) * b(x)


class Separable(Kernel):
    """k_x(x, x') k_t(t, t'), of inputs (x, t) whose last column is t.

    On a grid of inducing inputs (`dgp_ppl.Grid`) its Gram matrix is a Kronecker product.
    """

    space: Any
    time: Any

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        if z is None:
            return self.space(x[..., :-1]) * self.time(x[..., -1:])
        return self.space(x[..., :-1], z[..., :-1]) * self.time(x[..., -1:], z[..., -1:])

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        key_x, key_t = random.split(key)
        a, b = self.space.features(key_x, num, dim - 1), self.time.features(key_t, num, 1)
        return lambda x: a(x[..., :-1]) * b(x[..., -1:])


class PerOutput(eqx.Module):
    """A kernel of its own for each output of a layer: every leaf of `kernel` leads with [P].

    Made by ``Kernel.learned(name, dim, out=P)``, or by stacking the leaves of P kernels.
    """

    kernel: Any

    def __call__(self, x: Inputs, z: Inputs | None = None) -> Array:
        """K(x, z) of every output, [P, N, M], or the diagonals, [P, N]."""
        return jax.vmap(lambda k: k(x, z))(self.kernel)
