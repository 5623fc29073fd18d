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
    """A finite mixture of NumPyro distributions along their leading axis: the law of y.

    Attributes:
        log_weights: [Q], normalised.
        components: batch shape [Q, ...].
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
        """log p(y), by logsumexp over the components."""
        values: Any = self.components.log_prob(y)
        weights = self.log_weights.reshape((-1,) + (1,) * (values.ndim - 1))
        return logsumexp(weights + values, axis=0)

    @property
    def support(self) -> Any:
        """Where y can be; of each entry, if it has several that are independent."""
        return self._entries().support

    def cdf(self, y: Array) -> Array:
        """P(Y <= y), entry by entry, where the likelihood has a distribution function."""
        return self._average(self._entries().cdf(y))

    def _entries(self) -> Any:
        law: Any = self.components
        return law.base_dist if type(law) is dist.Independent else law

    def sample(self, key: PRNGKey) -> Array:
        """One draw of y, each row from a component of its own."""
        key_q, key_y = random.split(key)
        draws: Any = self.components.sample(key_y)
        if len(self.log_weights) == 1:
            return draws[0]
        row = random.categorical(key_q, self.log_weights, shape=draws.shape[1:2])
        return draws[row, jnp.arange(draws.shape[1])]
