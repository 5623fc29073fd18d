"""Expectations over a scalar f ~ N(mean, sd²) of functions that may be much narrower than sd.

Fixed nodes are cheap, and exact for functions that are smooth on the scale of sd. A likelihood can
also be a peak, a step or a cusp between two nodes. A second rule with other nodes shows that: where
the two differ, nodes are placed by the function itself. Panels of a Gauss-Legendre rule then shrink
geometrically towards the peak, the mode of the integrand, and the steepest place.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

__all__ = ["TRAPEZOID", "expectation", "log_expectation", "step_expectation"]

Function = Callable[[Array], Array]
"""A function of f, [..., N] -> [..., N], row by row."""

TRAPEZOID = np.linspace(-8, 8, 160)
"""Nodes a tenth of a standard deviation apart. Their even number keeps them off the mean, where the
gradient of NumPyro's logits is wrong."""
_LEGENDRE = np.polynomial.legendre.leggauss(6)
_SEARCH = 1e4 * np.sinh(9 * np.linspace(-1, 1, 66)) / np.sinh(9)  # where searches start
_CENTRAL = np.array([-8.0, -5.0, -3.0, -1.5, 0.0, 1.5, 3.0, 5.0, 8.0])  # ends of panels for N(0, 1)
_SHRINKING = 8.0 * 5.0 ** -np.arange(9)  # distances of panels' ends from a centre, down to 2e-5
_ZOOMS = 11
_TOLERANCE = 3e-5  # largest difference of two rules that keeps the cheap one, in nats


def log_expectation(log_p: Function, mean: Float[Array, " N"], sd: Float[Array, " N"]) -> Array:
    """Return log E[p(f)], [N], exact to about 1e-4 nats for peaks down to 1e-4 sd wide.

    Args:
        log_p: log p, row by row; for every row continuous with one peak, or monotone.
        mean: mean of f.
        sd: standard deviation of f.
    """
    log_weights = -0.5 * TRAPEZOID**2
    log_weights = log_weights - np.log(np.exp(log_weights).sum())

    def fixed(log_terms: Array, every: int = 1) -> Array:
        weights = jnp.asarray(log_weights[::every, None] + np.log(every), sd.dtype)
        return logsumexp(weights + log_terms[::every], axis=0)

    def adapted(mean: Array, sd: Array) -> Array:
        centres = _peak(log_p, mean, sd), _mode(log_p, mean, sd), _step(log_p, mean, sd)
        u, log_w = _panels(centres)
        return logsumexp(log_w + log_p(mean + sd * u), axis=0)

    terms = log_p(mean + sd * jnp.asarray(TRAPEZOID, sd.dtype)[:, None])
    whole = fixed(terms)
    # A peak between two nodes leaves one subset of the nodes alone, but not both.
    near = [jnp.abs(whole - fixed(terms, every)) <= _TOLERANCE for every in (2, 3)]
    return _choose(whole, near[0] & near[1], adapted, mean, sd)


def expectation(
    log_p: Function, mean: Float[Array, " N"], sd: Float[Array, " N"], num_nodes: int
) -> Array:
    """Return E[log p(f)], [N], to about 1e-4 of max(1, |E|), for cusps and kinks too.

    Args:
        log_p: as for `log_expectation`.
        mean: mean of f.
        sd: standard deviation of f.
        num_nodes: number of Gauss-Hermite nodes, for functions that are smooth on the scale of sd.
    """

    def fixed(num: int) -> Array:
        x, w = np.polynomial.hermite_e.hermegauss(num)
        terms = log_p(mean + sd * jnp.asarray(x, sd.dtype)[:, None])
        return _weighted_sum(jnp.asarray(w / w.sum(), sd.dtype)[:, None], terms)

    def adapted(mean: Array, sd: Array) -> Array:
        u, log_w = _panels((_peak(log_p, mean, sd), _step(log_p, mean, sd)))
        return _weighted_sum(jnp.exp(log_w), log_p(mean + sd * u))

    first, second = fixed(num_nodes), lax.stop_gradient(fixed(num_nodes + 7))
    near = jnp.abs(first - second) <= _TOLERANCE * jnp.maximum(1.0, jnp.abs(second))
    return _choose(first, near, adapted, mean, sd)


def step_expectation(p: Function, mean: Float[Array, " N"], sd: Float[Array, " N"]) -> Array:
    """Return E[p(f)], [N], to about 1e-5, for a p that rises or falls in one step of any width.

    Args:
        p: a function with values in [0, 1].
        mean: mean of f.
        sd: standard deviation of f.
    """

    def adapted(mean: Array, sd: Array) -> Array:
        u, log_w = _panels((_step(lambda f: jnp.log(p(f)), mean, sd),))
        return _weighted_sum(jnp.exp(log_w), p(mean + sd * u))

    terms = p(mean + sd * jnp.asarray(TRAPEZOID, sd.dtype)[:, None])
    weights = np.exp(-0.5 * TRAPEZOID**2)

    def fixed(every: int) -> Array:
        w = weights[::every] / weights[::every].sum()
        return _weighted_sum(jnp.asarray(w, sd.dtype)[:, None], terms[::every])

    whole = fixed(1)
    near = [jnp.abs(whole - fixed(every)) <= 1e-5 for every in (2, 3)]
    return _choose(whole, near[0] & near[1], adapted, mean, sd)


def _weighted_sum(weights: Array, terms: Array) -> Array:
    """Sum over nodes. A node of weight 0 does not count, whatever its term."""
    return jnp.sum(weights * jnp.where(weights > 0, terms, 0.0), axis=0)


def _choose(value: Array, good: Array, better: Callable[..., Array], *args: Array) -> Array:
    """Return value if it is good in all rows, else better(*args) in the rows where it is not."""
    good = lax.stop_gradient(good)
    keep, replace = lambda *_: value, lambda *a: jnp.where(good, value, better(*a))
    return lax.cond(_all(good), keep, replace, *args)


@custom_vmap
def _all(good: Array) -> Array:
    """Return whether all entries are true, over a batch of `jax.vmap` too.

    `lax.cond` with one condition for the whole batch runs one branch; with many it runs both.
    """
    return jnp.all(good)


@_all.def_vmap
def _all_of_batch(size: int, batched: list[bool], good: Array) -> tuple[Array, bool]:
    return _all(good), False


def _panels(centres: tuple[Array, ...]) -> tuple[Array, Array]:
    """Return nodes u and log weights, [Q, N], of an expectation over N(0, 1)."""
    rows = centres[0]
    offsets = np.concatenate([-_SHRINKING, [0.0], _SHRINKING])[:, None]
    ends = [c + jnp.asarray(offsets, rows.dtype) for c in centres]
    ends.append(jnp.broadcast_to(jnp.asarray(_CENTRAL, rows.dtype)[:, None], (9, *rows.shape)))
    ends = jnp.sort(jnp.concatenate(ends), axis=0)
    middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    x, w = (jnp.asarray(a, rows.dtype)[:, None, None] for a in _LEGENDRE)
    u = (middle + half * x).reshape(-1, *rows.shape)
    width = (half * w).reshape(-1, *rows.shape)
    log_w = jnp.log(width) - 0.5 * u**2 - 0.5 * np.log(2 * np.pi)
    return lax.stop_gradient((u, log_w))


def _peak(log_p: Function, mean: Array, sd: Array) -> Array:
    """Return where log p is largest, in standard deviations from the mean, [N]."""
    return _largest(lambda u: log_p(mean + sd * u), mean)


def _mode(log_p: Function, mean: Array, sd: Array) -> Array:
    """Return where the density p(f) N(f; mean, sd²) is largest, [N]."""
    return _largest(lambda u: log_p(mean + sd * u) - 0.5 * u**2, mean)


def _step(log_p: Function, mean: Array, sd: Array) -> Array:
    """Return where p changes most over a short distance, [N]."""

    def changes(u: Array) -> Array:
        values = log_p(mean + sd * u)
        p = jnp.exp(values - jnp.max(values, axis=0))
        return jnp.abs(p[1:] - p[:-1])

    def interval(u: Array) -> tuple[Array, Array]:
        steepest = jnp.argmax(jnp.nan_to_num(changes(u)), axis=0)
        return _at(u, steepest), _at(u, steepest + 1)

    return _zoom(interval, mean)


def _largest(function: Function, like: Array) -> Array:
    """Return the place of the largest value of a function with one maximum, by zooming in."""

    def interval(u: Array) -> tuple[Array, Array]:
        best = jnp.argmax(jnp.nan_to_num(function(u), nan=-jnp.inf), axis=0)
        return _at(u, jnp.maximum(best - 1, 0)), _at(u, jnp.minimum(best + 1, len(u) - 1))

    return _zoom(interval, like)


def _zoom(interval: Callable[[Array], tuple[Array, Array]], like: Array) -> Array:
    """Return a place that repeated choices of an interval between given places lead to, [N]."""

    def again(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        inner = jnp.asarray(np.linspace(0, 1, 10), low.dtype)[:, None]
        return interval(low + (high - low) * inner)

    start = jnp.asarray(_SEARCH, like.dtype)[:, None]
    first = interval(jnp.broadcast_to(start, (len(_SEARCH), *like.shape)))
    low, high = lax.fori_loop(1, _ZOOMS, again, lax.stop_gradient(first))
    return lax.stop_gradient(0.5 * (low + high))


def _at(u: Array, index: Array) -> Array:
    return jnp.take_along_axis(u, index[None], axis=0)[0]
