"""Kernels of the inner product of two inputs: linear functions, and infinitely wide networks."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from dgp_ppl._typing import Inputs, OtherInputs, PRNGKey
from dgp_ppl.kernels._base import Features, Kernel
from dgp_ppl.kernels._scaled import Scaled
from dgp_ppl.linalg._products import computed_once, matmul


class Linear(Scaled, Kernel):
    """The kernel of Bayesian linear regression through the origin, variance · sum_d x_d z_d / l_d².

    Args:
        variance: prior variance of the slope of a scaled input, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
    """

    variance: Any
    lengthscale: Any

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        self._check_width(x)
        scale = jnp.atleast_2d(self.lengthscale)
        if z is None:
            return self.variance * jnp.sum(jnp.square(x / scale), axis=-1)
        return self.variance * matmul(x / scale, (z / scale).T)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        slope = random.normal(key, (num, dim)) / jnp.atleast_2d(self.lengthscale)
        return lambda x: jnp.sqrt(self.variance) * matmul(x, slope.T)


class ArcCosine(Scaled, Kernel):
    """The arc-cosine kernel of order 1: the limit of an infinitely wide ReLU layer.

    k(x, z) = variance / π · |x̃||z̃| (sin θ + (π - θ) cos θ), where x̃ = (x / l, bias) and θ is the
    angle between x̃ and z̃.

    Args:
        variance: scale of the prior variance, in the square of the function's units, [].
        lengthscale: in the units of the inputs, [D], or [] for all inputs.
        bias: standard deviation of the hidden units' offsets, [].

    Source: Cho & Saul (2009), "Kernel methods for deep learning", eq. 1 and 7.
    """

    initial: ClassVar[dict[str, float]] = {"variance": 1.0, "bias": 1.0}
    variance: Any
    lengthscale: Any
    bias: Any

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        self._check_width(x)
        bias, scale = jnp.square(self.bias), jnp.atleast_2d(self.lengthscale)
        norm_x = jnp.sqrt(jnp.sum(jnp.square(x / scale), axis=-1) + bias)
        if z is None:
            return self.variance * jnp.square(norm_x)
        norm_z = jnp.sqrt(jnp.sum(jnp.square(z / scale), axis=-1) + bias)
        norms = norm_x[:, None] * norm_z[None, :]
        inner = matmul(x / scale, (z / scale).T) + bias
        # The slope of arccos is infinite at ±1, although the kernel's is finite: stay off ±1.
        bound = 1 - jnp.finfo(norms.dtype).eps
        cosine = jnp.clip(computed_once(inner / norms), -bound, bound)
        angle = jnp.arccos(cosine)
        sine = jnp.sqrt(1 - jnp.square(cosine))
        return self.variance / jnp.pi * norms * (sine + (jnp.pi - angle) * cosine)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        key_w, key_b = random.split(key)
        slope = random.normal(key_w, (num, dim)) / jnp.atleast_2d(self.lengthscale)
        offset = self.bias * random.normal(key_b, (num,))
        scale = jnp.sqrt(2 * self.variance)
        return lambda x: scale * jax.nn.relu(matmul(x, slope.T) + offset[None])
