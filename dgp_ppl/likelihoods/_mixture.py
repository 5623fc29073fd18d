"""Finite mixtures of NumPyro distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._quadrature import log_expectation, step_expectation

__all__ = ["LatentMixture", "Mixture"]


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
        spread = self._average(jnp.square(self.components.mean - self.mean[None]))
        return self._average(self.components.variance) + spread

    def log_prob(self, y: ArrayLike) -> Array:
        """Return log p(y) in nats, by logsumexp over the components."""
        values: Any = self.components.log_prob(y)
        weights = self.log_weights.reshape((-1,) + (1,) * (values.ndim - 1))
        return logsumexp(weights + values, axis=0)

    @property
    def support(self) -> Any:
        """The support of y; for independent entries, the support of one entry."""
        return self.entries.support

    def cdf(self, y: ArrayLike) -> Array:
        """Return P(Y <= y) of every entry, if the likelihood has a cdf."""
        return self._average(self.entries.cdf(y))

    def with_entries(self, mask: Array) -> Mixture:
        """Return the mixture of the entries where the mask [N, P] is True."""
        components: Any = self.components
        if type(components) is not dist.Independent:
            raise ValueError(
                f"the outputs are {type(components).__name__}, which cannot leave out single "
                "entries, wanted a mask of rows [N]"
            )
        masked = components.base_dist.mask(mask).to_event(components.reinterpreted_batch_ndims)
        return Mixture(self.log_weights, masked)

    @property
    def entries(self) -> Any:
        """The components; for independent entries, the distributions of the entries."""
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


class _Program(eqx.Module):
    """A function with its closed-over arrays as leaves: `jax.jit` and `jax.vmap` can return it.

    (The program inside `equinox.filter_closure_convert` is a leaf, which they cannot return.)
    """

    jaxpr: Any = eqx.field(static=True)
    arrays: list[ArrayLike]

    @staticmethod
    def from_closure(function: Callable[..., Array], *args: ArrayLike) -> _Program:
        """Trace a function at arguments of the shapes that it will get."""
        closed = jax.make_jaxpr(function)(*args)
        return _Program(closed.jaxpr, closed.consts)

    def __call__(self, *args: ArrayLike) -> Array:
        return jaxpr_as_fun(ClosedJaxpr(self.jaxpr, self.arrays))(*args)[0]


class LatentMixture(Mixture):
    """The distribution of y with a scalar latent f ~ N(latent_mean, latent_sd²) integrated out.

    Moments and draws come from a mixture over fixed nodes of f. Densities and distribution
    functions place their nodes by y, because a likelihood can be narrower than the nodes' spacing.

    Attributes:
        latent_mean: mean of f, [N].
        latent_sd: standard deviation of f, [N].
        log_likelihood: log p(y | f) as a function of f and y, row by row.
        likelihood_cdf: P(Y <= y | f) as a function of f and y; None if NumPyro has none.
    """

    latent_mean: Float[Array, " N"]
    latent_sd: Float[Array, " N"]
    log_likelihood: Callable[[Array, Array], Array]
    likelihood_cdf: Callable[[Array, Array], Array] | None

    @staticmethod
    def build(
        log_weights: Array, f: Array, likelihood: Callable[[Array], Any], mean: Array, sd: Array
    ) -> LatentMixture:
        """Make the mixture of a likelihood p(y | f), given log weights [Q] of nodes of f [Q, N]."""
        components = likelihood(f)
        at_mean = likelihood(mean)
        y = jnp.zeros(at_mean.shape(), mean.dtype)
        discrete = bool(components.support.is_discrete)
        log_prob = lambda f, y: likelihood(f).log_prob(y)  # noqa: E731
        density = _Program.from_closure(log_prob, mean, y.astype(int) if discrete else y)
        try:
            cdf = _Program.from_closure(lambda f, y: likelihood(f).cdf(y), mean, y)
        except NotImplementedError:
            cdf = None
        return LatentMixture(log_weights, components, mean, sd, density, cdf)

    def log_prob(self, y: ArrayLike) -> Array:
        """Return log p(y) in nats, [N]."""
        y = jnp.asarray(y, int if self.support.is_discrete else self.latent_mean.dtype)
        log_p = jax.vmap(lambda f: self.log_likelihood(f, y))
        return log_expectation(log_p, self.latent_mean, self.latent_sd)

    def cdf(self, y: ArrayLike) -> Array:
        """Return P(Y <= y), [N], if the likelihood has a cdf."""
        if self.likelihood_cdf is None:
            raise NotImplementedError("cdf: NumPyro has no cdf of this likelihood; draw samples")
        cdf, y = self.likelihood_cdf, jnp.asarray(y, self.latent_mean.dtype)
        p = jax.vmap(lambda f: cdf(f, y))
        return step_expectation(p, self.latent_mean, self.latent_sd)
