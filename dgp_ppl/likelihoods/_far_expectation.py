"""Integrals of positive functions of one variable, and where a function ends."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array

LEAST = 15.0  # an integrand does not count where it is so many nats below its largest value
_FRACTIONS = np.linspace(0, 1, 64)


def evenly_spaced(first: Array, last: Array) -> tuple[Array, Array]:
    """Return evenly spaced nodes on intervals, [Q, ...], and how far they are apart, [...]."""
    first, last = jnp.broadcast_arrays(first, last)
    fractions = jnp.asarray(_FRACTIONS, first.dtype).reshape((-1,) + (1,) * first.ndim)
    return first + (last - first) * fractions, (last - first) / (len(_FRACTIONS) - 1)


def log_integral(log_integrand: Callable[[Array], Array], first: Array, last: Array) -> Array:
    """Return log ∫ exp(log_integrand(u)) du, [...], of an integrand that counts between the ends.

    The integrand is analytic and falls fast at both ends, so the error is below 1e-6 where nodes
    are less than a width of the integrand apart. Gradients treat the nodes as constants.
    """
    # The first look finds where the integrand counts, and the second integrates there.
    u, step = lax.stop_gradient(evenly_spaced(first, last))
    found = lax.stop_gradient(log_integrand(u))
    counts = found > jnp.max(found, axis=0) - LEAST
    first = jnp.min(jnp.where(counts, u, jnp.inf), axis=0) - step
    last = jnp.max(jnp.where(counts, u, -jnp.inf), axis=0) + step
    u, step = evenly_spaced(first, last)
    return logsumexp(log_integrand(u), axis=0) + jnp.log(step)


def last_finite(
    function: Callable[[Array], Array], mean: Array, sd: Array, known: Array, other: Array
) -> tuple[Array, Array]:
    """Return the last u, [N, ...], where function(mean + sd u) is finite, and its value there.

    It is finite where u is `known`, and not at the `other` end; mean and sd are [N].
    """
    mean, sd = lax.stop_gradient((mean, sd))

    def at(u: Array) -> Array:
        each = lambda u: function(mean + sd * u).reshape(*mean.shape, -1)  # noqa: E731
        found = jax.vmap(each, -1, -1)(u.reshape(*mean.shape, -1))  # each entry at all their u
        return lax.stop_gradient(jnp.diagonal(found, axis1=-2, axis2=-1).reshape(u.shape))

    def halved(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        finite = jnp.isfinite(at(middle))
        return jnp.where(finite, middle, ends[0]), jnp.where(finite, ends[1], middle)

    known, _ = lax.fori_loop(0, 20, halved, (known, other))
    return known, at(known)
