"""Finite mixtures of NumPyro distributions."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey

__all__ = ["Mixture"]


class Mixture(eqx.Module):
    """A finite mixture of NumPyro distributions along their leading batch axis.

    `Observed.predictive` returns one: the distribution of y with f integrated out.

    Attributes:
        log_weights: normalised log weights, [Q].
        components: a distribution with batch shape [Q, ...].
    """

    log_weights: Float[Array, " Q"]
    components: dist.Distribution

    def _average(self, values: Array) -> Array:
        return jnp.tensordot(
            jnp.exp(self.log_weights), values, axes=1, precision=lax.Precision.HIGHEST
        )

    @property
    def mean(self) -> Array:
        """E[y]."""
        return self._average(self.components.mean)

    @property
    def variance(self) -> Array:
        """Var[y], by the law of total variance."""
        spread = self._average(jnp.square(self.components.mean - self.mean))
        return self._average(self.components.variance) + spread

    def log_prob(self, y: Array) -> Array:
        """Return log p(y) in nats, by logsumexp over the components."""
        values: Any = self.components.log_prob(y)
        weights = self.log_weights.reshape((-1,) + (1,) * (values.ndim - 1))
        return logsumexp(weights + values, axis=0)

    @property
    def support(self) -> Any:
        """The support of y; for independent entries, the support of one entry."""
        return self._elementwise().support

    def cdf(self, y: Array) -> Array:
        """Return P(Y <= y) of every entry, if the likelihood has a cdf."""
        return self._average(self._elementwise().cdf(y))

    def _elementwise(self) -> Any:
        components: Any = self.components
        independent = type(components) is dist.Independent
        return components.base_dist if independent else components

    def sample(self, key: PRNGKey) -> Array:
        """Draw y once; every row picks its component independently."""
        key_q, key_y = random.split(key)
        draws: Any = self.components.sample(key_y)
        if len(self.log_weights) == 1:
            return draws[0]
        row = random.categorical(key_q, self.log_weights, shape=draws.shape[1:2])
        return draws[row, jnp.arange(draws.shape[1])]
