"""Gaussian noise whose standard deviation changes with the input."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import ndtr
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood
from dgp_ppl.likelihoods._quadrature import log_integral
from dgp_ppl.linalg._products import deviation

_MAX_LOG_PRECISION = 50.0  # of E[sd⁻²], so that bounds stay finite in float32
_NODES = np.linspace(-6, 6, 97)  # standard deviations of f₂, for distribution functions
_WIDTHS = 6.0  # from a mode to where the density of f₂ given y no longer counts
_HALVINGS = 40


class HeteroscedasticNormal(AnalyticLikelihood):
    """Gaussian noise with its own latent function: y ~ N(f₁, (scale · exp(f₂))²).

    The expected log-likelihood has a closed form (Lázaro-Gredilla & Titsias 2011). The predictive
    density integrates f₁ exactly and f₂ by quadrature, with nodes where y wants them: right to
    0.001 nats while the standard deviation of f₂ is below 2, however far y lies from f₁.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods import HeteroscedasticNormal
    >>> y = HeteroscedasticNormal(jnp.array([[1.0, 0.0], [5.0, 0.7]]), base_scale=0.5)
    >>> y.mean.tolist(), [round(float(s), 2) for s in y.scale]
    ([1.0, 5.0], [0.5, 1.01])

    Args:
        latent: f, [..., N, 2]: the mean of y, and the log of its noise relative to `base_scale`.
        base_scale: standard deviation of the noise where f₂ = 0, in the units of y, a number or
            [..., N].

    Raises:
        ValueError: if f does not have two outputs.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "latent": constraints.independent(constraints.real, 1),
        "base_scale": constraints.positive,
    }
    support: Any = constraints.real

    def __init__(
        self, latent: ArrayLike, base_scale: ArrayLike = 0.3, *, validate_args: bool | None = None
    ) -> None:
        self.latent = jnp.asarray(latent)
        if self.latent.shape[-1:] != (2,):
            raise ValueError(
                f"HeteroscedasticNormal: latent has shape {self.latent.shape}, wanted [..., 2]: a "
                "last layer with out=2"
            )
        self.base_scale: Any = base_scale
        shape: Any = jnp.broadcast_shapes(self.latent.shape[:-1], jnp.shape(base_scale))
        super().__init__(shape, validate_args=validate_args)

    @property
    def scale(self) -> Array:
        """Standard deviation of y given f, [..., N]."""
        return self.base_scale * jnp.exp(self.latent[..., 1])

    @property
    def mean(self) -> Array:
        return self.latent[..., 0]

    @property
    def variance(self) -> Array:
        return jnp.square(self.scale)

    def log_prob(self, value: Array) -> Array:
        log_scale = jnp.log(self.base_scale) + self.latent[..., 1]
        z = (value - self.mean) * jnp.exp(-log_scale)
        return -0.5 * math.log(2 * math.pi) - log_scale - 0.5 * jnp.square(z)

    def cdf(self, value: Array) -> Array:
        return dist.Normal(self.mean, self.scale).cdf(value)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = random.normal(key, sample_shape + self.batch_shape, self.latent.dtype)
        return self.mean + self.scale * noise

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array:
        # -½ log 2π - E[log sd] - ½ ((y - m₁)² + v₁) E[sd⁻²], where E[sd⁻²] is
        # exp(2 v₂ - 2 m₂) / base_scale², taken as at most exp(50)
        mean, log_ratio = self.latent[..., 0], self.latent[..., 1]
        log_scale = jnp.log(self.base_scale) + log_ratio
        precision = jnp.exp(jnp.minimum(2 * var[..., 1] - 2 * log_scale, _MAX_LOG_PRECISION))
        square = jnp.square(value - mean) + var[..., 0]
        return -0.5 * math.log(2 * math.pi) - log_scale - 0.5 * square * precision

    def predictive(self, var: Array) -> dist.Distribution:
        return _Predictive(self.latent, var, jnp.asarray(self.base_scale))


class _Predictive(dist.Distribution):
    """The distribution of y with both functions integrated out, given mean and variance of f."""

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "loc": constraints.independent(constraints.real, 1),
        "var": constraints.independent(constraints.nonnegative, 1),
        "base_scale": constraints.positive,
    }
    support: Any = constraints.real

    def __init__(self, loc: Array, var: Array, base_scale: Any) -> None:
        self.loc, self.var, self.base_scale = loc, var, base_scale
        super().__init__(jnp.broadcast_shapes(loc.shape, var.shape)[:-1])

    @property
    def mean(self) -> Array:
        return jnp.broadcast_to(self.loc[..., 0], self.batch_shape)

    @property
    def variance(self) -> Array:
        noise = jnp.exp(2 * (self.loc[..., 1] + self.var[..., 1]))
        return self.var[..., 0] + jnp.square(self.base_scale) * noise

    def _variance(self, u: Array) -> Array:
        """Return the variance of y given f₂ = m₂ + u √v₂."""
        log_ratio = self.loc[..., 1] + deviation(self.var[..., 1]) * u
        return self.var[..., 0] + jnp.square(self.base_scale * jnp.exp(log_ratio))

    def log_prob(self, value: Array) -> Array:
        square = jnp.square(value - self.loc[..., 0])

        def log_density(u: Array) -> Array:
            variance = self._variance(u)
            log_normal = jnp.log(variance) + square / variance + jnp.square(u)
            return -math.log(2 * math.pi) - 0.5 * log_normal

        sd = lax.stop_gradient(deviation(self.var[..., 1]))
        noise = jnp.square(self.base_scale * jnp.exp(self.loc[..., 1]))
        mode = _largest_mode(lax.stop_gradient(square / noise), sd)
        # No mode is below -√v₂, and none is wider than a standard deviation.
        return log_integral(log_density, -sd - _WIDTHS, mode + _WIDTHS)

    def cdf(self, value: Array) -> Array:
        away = value - self.loc[..., 0]
        u = jnp.asarray(_NODES, away.dtype).reshape((-1,) + (1,) * away.ndim)
        below = ndtr(away / jnp.sqrt(self._variance(u)))
        weights = jnp.exp(-0.5 * jnp.square(u))
        return jnp.sum(weights * below, axis=0) / jnp.sum(weights, axis=0)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        key_f, key_y = random.split(key)
        shape = sample_shape + self.batch_shape
        eps = random.normal(key_f, (*shape, 2), self.loc.dtype)
        f = self.loc + deviation(self.var) * eps
        noise = random.normal(key_y, shape, self.loc.dtype)
        return f[..., 0] + self.base_scale * jnp.exp(f[..., 1]) * noise


def heteroscedastic(f: Float[Array, "*batch N 2"]) -> dist.Distribution:
    """Gaussian noise that changes with the input. See `HeteroscedasticNormal`.

    In a model its `base_scale` is the param ``noise``, which starts at 0.3. So f₂, whose prior mean
    is 0, is left with what varies.

    Args:
        f: [N, 2], from a last layer with ``out=2``: the mean of y, and the log of its noise.

    Returns:
        A `HeteroscedasticNormal` distribution with batch shape [N].
    """
    scale: Any = numpyro.param("noise", 0.3, constraint=constraints.positive)
    return HeteroscedasticNormal(f, scale)


def _largest_mode(ratio: Array, sd: Array) -> Array:
    """Return a bound on the modes of the density of u = (f₂ - m₂) / √v₂ given y, [...].

    It is 0, or the mode for a known f₁, where u = √v₂ (ratio · exp(-2 √v₂ u) - 1).
    """
    # In s = 2 √v₂ u: s + log(1 + s / (2 v₂)) = log(ratio), whose left side grows.
    ratio = jnp.minimum(ratio, jnp.finfo(ratio.dtype).max)
    var = jnp.maximum(2 * jnp.square(sd), jnp.finfo(sd.dtype).tiny)
    largest = jnp.log(jnp.maximum(ratio, 1.0))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        above = middle + jnp.log1p(middle / var) > largest
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    s = lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(largest), largest))[1]
    return jnp.minimum(s / jnp.sqrt(2 * var), sd * ratio)  # where √v₂ is tiny, s has no digits
