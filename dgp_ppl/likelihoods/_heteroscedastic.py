"""Gaussian noise whose standard deviation changes with the input."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood
from dgp_ppl.linalg import deviation

__all__ = ["HeteroscedasticNormal", "heteroscedastic"]

_MAX_LOG_PRECISION = 50.0  # of E[sd⁻²], so that bounds stay finite in float32
_NODES = 97  # an eighth of a standard deviation of f₂ apart


class HeteroscedasticNormal(AnalyticLikelihood):
    """Gaussian noise with its own latent function: y ~ N(f₁, (scale · exp(f₂))²).

    The expected log-likelihood has a closed form (Lázaro-Gredilla & Titsias 2011). The predictive
    density integrates f₁ exactly and f₂ by quadrature, right to 0.001 nats while the standard
    deviation of f₂ is below 2.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods import HeteroscedasticNormal
    >>> y = HeteroscedasticNormal(jnp.array([[1.0, 0.0], [5.0, 0.7]]), base_scale=0.5)
    >>> y.mean.tolist(), [round(float(s), 2) for s in y.scale]
    ([1.0, 5.0], [0.5, 1.01])

    Args:
        latent: f, [..., N, 2]: the mean of y, and the log of its noise relative to `base_scale`.
        base_scale: standard deviation of the noise where f₂ = 0, in the units of y.

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
        super().__init__(self.latent.shape[:-1], validate_args=validate_args)

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
        """Return E[log p(y | f)] in nats, [..., N].

        It is -½ log 2π - E[log sd] - ½ ((y - m₁)² + v₁) E[sd⁻²], where E[sd⁻²] is
        exp(2 v₂ - 2 m₂) / base_scale², taken as at most exp(50).

        Args:
            var: variance of f, [..., N, 2].
            value: y, [..., N].
            num_nodes: ignored.
        """
        mean, log_ratio = self.latent[..., 0], self.latent[..., 1]
        log_scale = jnp.log(self.base_scale) + log_ratio
        precision = jnp.exp(jnp.minimum(2 * var[..., 1] - 2 * log_scale, _MAX_LOG_PRECISION))
        square = jnp.square(value - mean) + var[..., 0]
        return -0.5 * math.log(2 * math.pi) - log_scale - 0.5 * square * precision

    def predictive(self, var: Array) -> dist.Distribution:
        """Return the distribution of y with f integrated out: a mixture of Gaussians.

        Args:
            var: variance of f, [..., N, 2].
        """
        nodes, log_weights = _nodes()
        spread = deviation(var[..., 1:])
        scale = self.base_scale * jnp.exp(self.latent[..., 1:] + spread * nodes)
        sd = jnp.sqrt(var[..., :1] + jnp.square(scale))
        normal = dist.Normal(self.latent[..., :1], sd)
        shape = (*self.batch_shape, _NODES)
        which: Any = dist.Categorical(logits=jnp.broadcast_to(log_weights, shape))
        return dist.MixtureSameFamily(which, normal.expand(shape))


def heteroscedastic(f: Float[Array, "N 2"]) -> dist.Distribution:
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


def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Return evenly spaced nodes of expectations over N(0, 1) and their log weights, [Q] each."""
    nodes = np.linspace(-6, 6, _NODES)
    log_weights = -0.5 * np.square(nodes)
    return nodes, log_weights - np.log(np.exp(log_weights).sum())
