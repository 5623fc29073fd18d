"""Finite mixtures of NumPyro distributions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from dgp_ppl._checks import is_traced
from dgp_ppl._partition import compiled
from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._counts import distribution_function, draw, whole
from dgp_ppl.likelihoods._far_expectation import far_expectation
from dgp_ppl.likelihoods._quadrature import (
    BRIEF,
    choose,
    hermite,
    log_expectation,
    step_expectation,
)

# NumPyro's variance of an angle is not E[(y - E[y])²].
_WITHOUT_MOMENTS = (
    dist.CategoricalProbs, dist.CategoricalLogits, dist.VonMises, dist.SineBivariateVonMises
)  # fmt: skip


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
        return self._average(self._means())

    @property
    def variance(self) -> Array:
        """Var[y], by the law of total variance."""
        return self.moments()[1]

    def moments(self) -> tuple[Array, Array]:
        """Return E[y] and Var[y]. Integrals take seconds to compile, and these share one."""
        mean = self.mean
        spread = self._average(jnp.square(self._means() - mean[None]))
        return mean, self._average(self.components.variance) + spread

    @property
    def roughness(self) -> Array:
        """The sd over draws of f of log E[y | f], where all are positive; 0 elsewhere."""
        means = self._means()
        if len(means) == 1:
            return jnp.zeros_like(means[0])
        logs = jnp.log(jnp.where(means > 0, means, 1.0))
        return jnp.where((means > 0).all(axis=0), logs.std(axis=0), 0.0)

    def _means(self) -> Any:
        """Return the means of the components. NumPyro's means of classes are NaN."""
        if isinstance(self.entries, _WITHOUT_MOMENTS):
            raise NotImplementedError("a class or an angle has no mean or variance here")
        return self.components.mean

    def log_prob(self, y: ArrayLike) -> Array:
        """Return log p(y) in nats; -inf off a discrete support, where NumPyro's may be finite."""
        y = jnp.asarray(y)
        support: Any = self.components.support
        if not support.is_discrete:
            return self._log_density(y)
        inside, value = whole(support, y[None])
        return jnp.where(inside[0], self._log_density(value[0]), -jnp.inf)

    def _log_density(self, y: Array) -> Array:
        """Return log p(y) at values of the support, by logsumexp over the components."""
        values: Any = self.components.log_prob(y)
        weights = self.log_weights.reshape((-1,) + (1,) * (values.ndim - 1))
        return logsumexp(weights + values, axis=0)

    @property
    def support(self) -> Any:
        """The support of y; for independent entries, the support of one entry."""
        return self.entries.support

    def cdf(self, y: ArrayLike) -> Array:
        """Return P(Y <= y) of every entry, if the likelihood has a cdf."""
        return self._average(distribution_function(self.entries, y))

    def with_entries(self, mask: Array) -> Mixture:
        """Return the mixture of the entries where the mask [N, P] is True."""
        return Mixture(self.log_weights, with_entries(self.components, mask))

    @property
    def entries(self) -> Any:
        """The components; of several entries, the distributions of the entries."""
        components: Any = self.components
        independent = type(components) is dist.Independent
        return components.base_dist if independent else getattr(components, "entries", components)

    def sample(self, key: PRNGKey) -> Array:
        """Draw y once; every row picks its component independently."""
        key_q, key_y = random.split(key)
        draws: Any = draw(self.components, key_y)
        if len(self.log_weights) == 1:
            return draws[0]
        row = random.categorical(key_q, self.log_weights, shape=draws.shape[1:2])
        return draws[row, jnp.arange(draws.shape[1])]


def with_entries(distribution: Any, mask: Array) -> dist.Distribution:
    """Return the distribution of the entries where the mask [N, P] is True."""
    if hasattr(distribution, "with_entries"):
        return distribution.with_entries(mask)
    if type(distribution) is not dist.Independent:
        raise ValueError(
            f"the outputs are {type(distribution).__name__}, which cannot leave out single "
            "entries, wanted a mask of rows [N]"
        )
    masked = distribution.base_dist.mask(mask)
    return masked.to_event(distribution.reinterpreted_batch_ndims)


class _Program(eqx.Module):
    """A function with its closed-over arrays as leaves: `jax.jit` and `jax.vmap` can return it."""

    # (The program inside `equinox.filter_closure_convert` is a leaf, which they cannot return.)

    jaxpr: Any = eqx.field(static=True)
    arrays: list[ArrayLike]

    @staticmethod
    def from_closure(function: Callable[..., Array], *args: ArrayLike) -> _Program:
        """Trace a function at arguments of the shapes that it will get."""
        closed = jax.make_jaxpr(function)(*args)
        return _Program(closed.jaxpr, closed.consts)

    @staticmethod
    def if_any(function: Callable[..., Array], *args: ArrayLike) -> _Program | None:
        """Trace a function; None if NumPyro lacks what it computes."""
        try:
            return _Program.from_closure(function, *args)
        except NotImplementedError:
            return None

    def __call__(self, *args: ArrayLike) -> Array:
        return jaxpr_as_fun(ClosedJaxpr(self.jaxpr, self.arrays))(*args)[0]


def holds_programs(tree: Any) -> bool:
    """Return whether a tree of mixtures has traced functions, which keep their precision."""
    is_program = lambda a: isinstance(a, _Program)  # noqa: E731
    return any(map(is_program, jax.tree.leaves(tree, is_leaf=is_program)))


def briefly(function: Callable[..., Array], **options: Any) -> Callable[..., Array]:
    """Compile a function of mixtures without the costly rules of quadrature, if these do.

    The other rules decide few rows of few likelihoods, and take seconds to compile. Where a row
    wants them the result is NaN, and the whole function is compiled.
    """

    def brief(*args: Any) -> Array:
        token = BRIEF.set(True)
        try:
            return function(*args)
        finally:
            BRIEF.reset(token)

    first, whole = compiled(brief, **options), compiled(function, **options)

    @functools.wraps(function)
    def run(*args: Any) -> Array:
        if BRIEF.get():  # within another such function: JAX would keep the program for both
            return function(*args)
        if holds_programs(args) and not is_traced(args):
            found = first(*args)
            if not np.isnan(np.asarray(found)).any():
                return found
        return whole(*args)

    return run


class _ExactMoments(Mixture):
    """A mixture over values of a latent f ~ N(latent_mean, latent_sd²), with moments given f."""

    latent_mean: Float[Array, " *N"]
    latent_sd: Float[Array, " *N"]
    moments_given: Any

    def _expectation(self, values: Array, moment: int, around: Array | None = None) -> Array:
        """Return the expectation of a moment, or its variance, given values for all components."""
        raise NotImplementedError

    @property
    def mean(self) -> Array:
        return self._expectation(self._means(), 0)

    def moments(self) -> tuple[Array, Array]:
        means, mean = self._means(), self.mean
        noise = self._expectation(self.components.variance, 1)
        return mean, noise + self._expectation(jnp.square(means - mean[None]), 0, mean)

    def _exact(self, moment: int, around: Array | None) -> Array:
        """Return the expectation over f."""
        # One moment at a time: another, with an infinite derivative, would make gradients NaN.
        given = self.moments_given[moment]
        function = given if around is None else lambda f: jnp.square(given(f) - around)
        return far_expectation(function, self.latent_mean, self.latent_sd)


class EntriesMixture(_ExactMoments):
    """A mixture over draws of f, [Q, N, P], of likelihoods with P independent entries.

    The moments of an entry that depends on its own latent alone, such as those of
    ``Poisson(exp(f)).to_event(1)``, are integrals over this latent, of others means over the draws.
    """

    @staticmethod
    def build(
        log_weights: Array, f: Array, likelihood: Callable[[Array], Any], mean: Array, sd: Array
    ) -> Mixture:
        """Make the mixture of a likelihood p(y | f), given log weights [Q] of draws of f."""
        given, mixture = _moments(likelihood, mean), Mixture(log_weights, likelihood(f))
        components, support = mixture.components, mixture.support
        by_entry = type(components) is dist.Independent and components.shape() == f.shape
        bounded = support is constraints.boolean or hasattr(support, "upper_bound")
        if given is None or bounded or not by_entry:  # draws are enough where y is bounded
            return mixture
        return EntriesMixture(log_weights, components, mean, sd, given)

    def _expectation(self, values: Array, moment: int, around: Array | None = None) -> Array:
        # Unused draws that overflow would make gradients NaN too.
        over_draws = lambda a: self._average(a)  # noqa: E731
        return choose(self._exact(moment, around), self._apart(), over_draws, values)

    @property
    def roughness(self) -> Array:
        return jnp.where(self._apart(), 0.0, super().roughness)

    def _apart(self) -> Array:
        """Return where an entry does not move with the latents of other entries, [N, P]."""
        outputs = jnp.arange(self.latent_mean.shape[1])
        # At the mean of f a factor may be exactly 0, and hide that an entry moves with another.
        shift = self.latent_sd * (0.3 + 0.17 * jnp.sin(outputs + 1.0))[None]

        def moved(k: Array, shift: Array) -> Array:
            f = self.latent_mean + shift
            far = jnp.full(len(f), 20.0, f.dtype)
            places = jnp.stack([f[:, k], -far, far])
            at = jax.vmap(lambda place: f.at[:, k].set(place))(places)
            found = jnp.stack([jax.vmap(given)(at) for given in self.moments_given], axis=1)
            # Entries that do not move keep all bits.
            same = (found == found[:1]) | (jnp.isnan(found) & jnp.isnan(found[:1]))
            return ~same.all(axis=(0, 1)) & (outputs != k)[None]

        every = jax.vmap(jax.vmap(moved, (0, None)), (None, 0))(outputs, jnp.stack([shift, -shift]))
        return ~every.any(axis=(0, 1))


class LatentMixture(_ExactMoments):
    """The distribution of y with a scalar latent f ~ N(latent_mean, latent_sd²) integrated out.

    Draws are of f, then of y. Moments come from a mixture over nodes of f, and from nodes further
    out where those count. Densities and distribution functions place their nodes by y, because a
    likelihood can be narrower than the nodes' spacing.

    Attributes:
        latent_mean: mean of f, [N].
        latent_sd: standard deviation of f, [N].
        moments_given: mean and variance of y as functions of f; None if NumPyro lacks one.
        log_likelihood: log p(y | f) as a function of f and y, row by row.
        cdf_given: P(Y <= y | f) as a function of f and y; None if NumPyro has none, as below.
        sampler: a draw of y as a function of f and random bits.
    """

    log_likelihood: Callable[[Array, Array], Array]
    cdf_given: Callable[[Array, Array], Array] | None
    sampler: Callable[[Array, Array], Array] | None

    @staticmethod
    def build(
        log_weights: Array, f: Array, likelihood: Callable[[Array], Any], mean: Array, sd: Array
    ) -> LatentMixture:
        """Make the mixture of a likelihood p(y | f), given log weights [Q] of nodes of f [Q, N]."""
        components, given = likelihood(f), likelihood(mean)
        y = jnp.zeros(given.shape(), mean.dtype)
        draws = lambda f, bits: draw(likelihood(f), random.wrap_key_data(bits))  # noqa: E731
        return LatentMixture(
            log_weights, components, mean, sd, _moments(likelihood, mean),
            _Program.from_closure(
                lambda f, y: likelihood(f).log_prob(y), mean,
                y.astype(int) if components.support.is_discrete else y,
            ),
            _Program.if_any(lambda f, y: distribution_function(likelihood(f), y), mean, y),
            _Program.if_any(draws, mean, _key_bits()),
        )  # fmt: skip

    def _expectation(self, values: Array, moment: int, around: Array | None = None) -> Array:
        if self.moments_given is None:
            raise NotImplementedError("moments: NumPyro has no mean or no variance; draw samples")
        return self._exact(moment, around)

    @property
    def roughness(self) -> Array:
        return jnp.zeros_like(self._means()[0])  # its moments are integrals

    def sample(self, key: PRNGKey) -> Array:
        """Draw y once."""
        if self.sampler is None:
            raise NotImplementedError("sample: NumPyro has no draws of this likelihood")
        key_f, key_y = random.split(key)
        noise = random.normal(key_f, self.latent_mean.shape, self.latent_mean.dtype)
        bits = random.bits(key_y, _key_bits().shape, jnp.uint32)
        return self.sampler(self.latent_mean + self.latent_sd * noise, bits)

    def _log_density(self, y: Array) -> Array:
        y = jnp.asarray(y, int if self.support.is_discrete else self.latent_mean.dtype)
        log_p = jax.vmap(lambda f: self.log_likelihood(f, y))
        return log_expectation(log_p, self.latent_mean, self.latent_sd)

    def cdf(self, y: ArrayLike) -> Array:
        """Return P(Y <= y), [N], if the likelihood has a cdf."""
        if self.components.event_shape:
            return super().cdf(y)
        if self.cdf_given is None:
            raise NotImplementedError("cdf: NumPyro has no cdf of this likelihood; draw samples")
        cdf, y = self.cdf_given, jnp.asarray(y, self.latent_mean.dtype)
        p = jax.vmap(lambda f: cdf(f, y))
        return step_expectation(p, self.latent_mean, self.latent_sd)

    def rough_cdf(self, y: ArrayLike) -> Array:
        """Return about P(Y <= y), [N], by eight nodes of f, if the likelihood has a cdf."""
        cdf: Any = self.cdf_given
        mean, sd = self.latent_mean, self.latent_sd
        (u, w), at = hermite(8, sd), jnp.asarray(y, sd.dtype)
        return jnp.sum(w * jax.vmap(lambda f: cdf(f, at))(mean[None] + sd[None] * u), axis=0)


def _moments(likelihood: Callable[[Array], Any], f: Array) -> tuple[_Program, _Program] | None:
    """Return the mean and the variance of y as programs of f; None if NumPyro lacks one."""
    mean = _Program.if_any(lambda f: likelihood(f).mean, f)
    variance = _Program.if_any(lambda f: likelihood(f).variance, f)
    return None if mean is None or variance is None else (mean, variance)


def _key_bits() -> Array:
    """Return the bits of a key. Programs take these, because a typed key has a type of its own."""
    return random.key_data(random.key(0))
