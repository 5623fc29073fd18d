"""Finite mixtures of NumPyro distributions, and the functionals of predictions made of them.

The functions take the S mixtures of S passes stacked by `jax.vmap`: every leaf leads with S, and
the law of y gives each pass the weight 1/S. B: rows.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey

__all__ = ["Mixture", "draws", "log_density", "log_density_by_pass", "moments", "quantiles"]


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


@jax.jit
def moments(laws: Mixture) -> Array:
    """Mean and variance of y over all passes, [B, 2, ...]."""
    mean, var = jax.vmap(lambda law: (law.mean, law.variance))(laws)
    return jnp.stack([mean.mean(axis=0), var.mean(axis=0) + mean.var(axis=0)], axis=1)


@jax.jit
def log_density(laws: Mixture, y: Array) -> Array:
    """log p(y) in nats, [B]: the log of the mean density over passes."""
    values = log_density_by_pass(laws, y)
    return logsumexp(values, axis=1) - jnp.log(values.shape[1])


@jax.jit
def log_density_by_pass(laws: Mixture, y: Array) -> Array:
    """log p(y | pass) in nats, [B, S]."""
    return jax.vmap(lambda law: law.log_prob(y), out_axes=1)(laws)


@jax.jit
def draws(laws: Mixture, picked: Array, key: PRNGKey) -> Array:
    """A draw of y from each picked pass, [B, num, ...]."""

    def draw(index: Array, key: PRNGKey) -> Array:
        return jax.tree.map(lambda a: a[index], laws).sample(key)

    return jnp.moveaxis(jax.vmap(draw)(picked, random.split(key, len(picked))), 0, 1)


@jax.jit
def quantiles(laws: Mixture, levels: Array) -> Array:
    """Quantiles of y over all passes, [B, len(levels), ...]: the least y with cdf(y) >= level.

    Raises:
        NotImplementedError: if there is no distribution function, or no ends to start between.
    """
    support, centre_var = laws.support, moments(laws)
    centre, sd = centre_var[:, 0], jnp.sqrt(centre_var[:, 1])
    centre = jnp.where(jnp.isfinite(centre), centre, 0.0)
    reach = jnp.where(jnp.isfinite(sd), 12 * sd, 1 + jnp.abs(centre))
    if support in (constraints.positive, constraints.nonnegative, constraints.nonnegative_integer):
        ends = jnp.zeros_like(centre), centre + reach + 1
    elif support in (constraints.unit_interval, constraints.boolean):
        ends = jnp.zeros_like(centre), jnp.ones_like(centre)
    elif support is constraints.real:
        ends = centre - reach, centre + reach
    else:
        raise NotImplementedError(support)
    whole = bool(support.is_discrete)
    level = levels.reshape((-1,) + (1,) * centre.ndim)

    def cdf(y: Array) -> Array:  # [levels, B, ...] -> the same
        y = jnp.floor(y) if whole else y
        return jax.vmap(lambda y: jax.vmap(lambda law: law.cdf(y))(laws).mean(axis=0))(y)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, upper = ends
        middle = 0.5 * (lower + upper)
        below = cdf(middle) < level
        return jnp.where(below, middle, lower), jnp.where(below, upper, middle)

    def widen(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        # Twelve standard deviations hold all but the rarest levels, where there are any.
        lower, upper = ends
        if support is constraints.real:
            lower = jnp.where(cdf(lower) > level, lower - 2 * (upper - lower), lower)
        return lower, jnp.where(cdf(upper) < level, upper + 2 * (upper - lower), upper)

    lower, upper = (jnp.broadcast_to(e, (len(levels), *e.shape)) for e in ends)
    if support not in (constraints.unit_interval, constraints.boolean):
        lower, upper = jax.lax.fori_loop(0, 12, widen, (lower, upper))
    lower, upper = jax.lax.fori_loop(0, 60, halve, (lower, upper))
    return jnp.moveaxis(jnp.floor(upper) if whole else 0.5 * (lower + upper), 0, 1)
