"""Expectations over a scalar f ~ N(mean, sd²) of functions that may be much narrower than sd.

Fixed nodes are cheap, and exact for functions that are smooth on the scale of sd. Where a second
rule differs, there is a peak, a step or a cusp between nodes: panels of a Gauss-Legendre rule then
shrink geometrically towards the peak, the steepest place and the mode of the integrand.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

Function = Callable[[Array], Array]  # of f, [..., N] -> [..., N], row by row
TRAPEZOID = np.linspace(-8, 8, 160)  # not at the mean, where NumPyro's logits' gradient is wrong
BRIEF = ContextVar("BRIEF", default=False)
"""Whether `choose` has NaN in place of the better value, whose program takes long to compile."""
_LEGENDRE = np.polynomial.legendre.leggauss(6)
_FAR, _ZOOMS = 1e5, 11
LEAST = 15.0  # an integrand does not count where it is so many nats below its largest value
_FRACTIONS = np.linspace(0, 1, 64)
_SEARCH = _FAR * np.sinh(12 * np.linspace(-1, 1, 90)) / np.sinh(12)  # where searches start, in sd
_LINKS = np.sinh(9 * np.linspace(-1, 1, 34)) / 8  # and in f: links bend near 0, on a scale of 1
_CENTRAL = np.array([-8.0, -5.0, -3.0, -1.5, 0.0, 1.5, 3.0, 5.0, 8.0])  # ends of panels for N(0, 1)
_SHRINKING = 8.0 * 6.0 ** -np.arange(10)  # distances of panels' ends from a centre, down to 8e-7
_ROUGH, _FALL, _SMALL = 2.0, 6.0, 3e-5  # nats; the last is an error that does not matter
# Of every second and third dense node. For kinks all nodes have a third and an eighth of the error.
_DENSE_TOLERANCES = {2: 1e-3, 3: 1e-2}
_LOG_TOLERANCES = {2: 1e-4, 3: 1e-3}  # and for log p, which can have a narrow dip


def log_expectation(log_p: Function, mean: Float[Array, " N"], sd: Float[Array, " N"]) -> Array:
    """Return log E[p(f)], [N], exact to about 1e-4 nats for peaks down to 1e-6 sd wide.

    For every row log p is continuous with one peak, or monotone. Where it is infinite or NaN, p
    counts as 0, and gradients stay finite.
    """
    log_weights = -0.5 * TRAPEZOID**2 - np.log(np.exp(-0.5 * TRAPEZOID**2).sum())

    def fixed(log_terms: Array, every: int = 1) -> Array:
        weights = jnp.asarray(log_weights[::every, None] + np.log(every), sd.dtype)
        return logsumexp(weights + log_terms[::every], axis=0)

    def adapted(mean: Array, sd: Array) -> Array:
        rise, fall = (partial(_step, size=sign) for sign in (jnp.positive, jnp.negative))
        centres = _centres(log_p, mean, sd, (_peak, rise, fall, _mode))
        u, log_w = _panels(centres, centres[-1])

        def counts(values: Array) -> Array:
            terms = log_w + values
            return terms > jnp.max(terms, axis=0, keepdims=True) - 80

        return logsumexp(log_w + _guarded(log_p, mean, sd, u, -jnp.inf, counts), axis=0)

    terms, known = _dense_terms(log_p, mean, sd)
    whole = fixed(terms)
    # A peak between two nodes leaves one subset of the nodes alone, but not both.
    near = [jnp.abs(whole - fixed(terms, n)) <= most for n, most in _DENSE_TOLERANCES.items()]
    # A jump of p between two nodes, beside small ones, can leave both alone.
    change = jnp.abs(jnp.diff(jnp.exp(terms + log_weights[:, None] - whole[None]), axis=0))
    beside = change[2:] + change[:-2]
    near.append(jnp.all(change[1:-1] <= 2 * beside + _DENSE_TOLERANCES[2], axis=0))
    ends = jnp.maximum(terms[0], terms[-1]) + log_weights[0]  # high if the mode is further out
    good = known & near[0] & near[1] & near[2] & (ends < whole - 15)
    good = good & ~_peak_at_link(log_p, terms, whole, mean, sd)
    return choose(whole, good, adapted, mean, sd)


def expectation(
    log_p: Function, mean: Float[Array, " N"], sd: Float[Array, " N"], num_nodes: int,
    possible: Function = jnp.isfinite,
) -> Array:  # fmt: skip
    """Return E[log p(f)], [N], to 1e-4 of max(1, |E|) if |f - mean| < 8 sd decides; cusps too.

    Functions that are smooth on the scale of sd take this number of Gauss-Hermite nodes. Where
    log p is infinite or NaN, gradients stay finite. If it is known nearer the mean, p has
    underflowed, and log p goes on as a straight line. Elsewhere, and where f is not `possible`, it
    counts as the lowest number.
    """

    def adapted(mean: Array, sd: Array) -> Array:
        centres = _centres(log_p, mean, sd, (_peak, _low, _high, _bulk))
        u, log_w = _panels(centres, centres[-1])
        whole = _continued(log_p, _nodes(mean, sd, u), possible)
        weights, lowest = jnp.exp(log_w), jnp.finfo(sd.dtype).min

        def counts(values: Array) -> Array:
            size = weights * jnp.maximum(1.0, jnp.abs(values))
            return size > 1e-12 * jnp.max(size, axis=0, keepdims=True)

        return _weighted_sum(weights, _guarded(whole, mean, sd, u, lowest, counts))

    x, w = hermite(num_nodes, sd)
    # The second rule's nodes reach further, so it overflows where the first does.
    further, weights = hermite(num_nodes + 7, sd)
    terms, known, check = _terms(log_p, mean, sd, x, further)
    first, second = _weighted_sum(w, terms), _weighted_sum(weights, check)
    near = jnp.abs(first - second) <= _SMALL * jnp.maximum(1.0, jnp.abs(second))
    good = lax.stop_gradient(known & near & ~_peak_at_link(log_p, check, jnp.inf, mean, sd))

    def denser(mean: Array, sd: Array) -> Array:
        terms, known = _dense_terms(log_p, mean, sd)
        whole = _trapezoid(terms)
        scale = jnp.maximum(1.0, jnp.abs(whole))
        near = [
            jnp.abs(whole - _trapezoid(terms, n)) <= a * scale for n, a in _LOG_TOLERANCES.items()
        ]
        ends = jnp.maximum(jnp.abs(terms[0]), jnp.abs(terms[-1])) * np.exp(-0.5 * TRAPEZOID[0] ** 2)
        fine = known & near[0] & near[1] & (ends <= _SMALL * scale)
        fine = fine & ~_peak_at_link(log_p, terms, jnp.inf, mean, sd)
        return choose(whole, good | fine, adapted, mean, sd)

    return choose(first, good, denser, mean, sd)


def step_expectation(p: Function, mean: Float[Array, " N"], sd: Float[Array, " N"]) -> Array:
    """Return E[p(f)], [N], to 1e-5, for a p in [0, 1] that changes in one step of any width."""

    def adapted(mean: Array, sd: Array) -> Array:
        centres = _centres(lambda f: jnp.log(p(f)), mean, sd, (_step,))
        u, log_w = _panels(centres, jnp.zeros_like(mean))
        return _weighted_sum(jnp.exp(log_w), p(_nodes(mean, sd, u)))

    terms = p(_nodes(mean, sd, jnp.asarray(TRAPEZOID, sd.dtype)[:, None]))
    whole = _trapezoid(terms)
    near = [jnp.abs(whole - _trapezoid(terms, every)) <= 1e-5 for every in (2, 3)]
    return choose(whole, near[0] & near[1], adapted, mean, sd)


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


def hermite(num: int, like: Array) -> tuple[Array, Array]:
    """Return places in standard deviations and weights, [num, 1], of a Gauss-Hermite rule."""
    x, w = np.polynomial.hermite_e.hermegauss(num)
    return jnp.asarray(x[:, None], like.dtype), jnp.asarray((w / w.sum())[:, None], like.dtype)


def _nodes(mean: Array, sd: Array, u: Array) -> Array:
    """Return f, [Q, N], at places u in sd, [Q, N] or [Q, 1]."""
    return mean[None] + sd[None] * u


def _terms(
    log_p: Function, mean: Array, sd: Array, x: Array, tried: Array
) -> tuple[Array, Array, Array]:
    """Return log p at places x, whether it is finite at all that were `tried`, and it at these."""
    f = _nodes(mean, sd, tried)
    values = _values(log_p, f)
    finite = jnp.isfinite(values)
    known, one = jnp.all(finite, axis=0), lax.stop_gradient(at(f, jnp.argmax(finite, axis=0)))
    # Where it is not, all places move to one where log p has a derivative, or else to 0.
    mean = jnp.where(known, mean, jnp.where(jnp.any(finite, axis=0), one, 0.0))
    return log_p(_nodes(mean, jnp.where(known, sd, 0.0), x)), known, values


def _dense_terms(log_p: Function, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Return log p at the dense nodes, [Q, N], and whether it is finite at the outermost, [N]."""
    nodes = jnp.asarray(TRAPEZOID, sd.dtype)[:, None]
    return _terms(log_p, mean, sd, nodes, nodes[jnp.array([0, -1])])[:2]


def _trapezoid(terms: Array, every: int = 1) -> Array:
    """Return the expectation by every second or third of the dense nodes, [N]."""
    w = np.exp(-0.5 * TRAPEZOID[::every] ** 2)
    return _weighted_sum(jnp.asarray(w / w.sum(), terms.dtype)[:, None], terms[::every])


def _values(log_p: Function, f: Array) -> Array:
    return lax.stop_gradient(log_p(lax.stop_gradient(f)))


def _guarded(
    log_p: Function, mean: Array, sd: Array, u: Array, lowest: ArrayLike, counts: Function
) -> Array:
    """Return log p at nodes u [Q, N], or `lowest`, with gradients at nodes that count alone."""
    # An infinite derivative far from the mean, times a weight of nearly 0, would spoil a gradient.
    f = _nodes(mean, sd, u)
    values = _values(log_p, f)
    finite = jnp.isfinite(values)
    values = jnp.where(finite, values, lowest)
    kept = finite & counts(values)
    best = lax.stop_gradient(at(f, jnp.argmax(values, axis=0)))
    return jnp.where(kept, log_p(jnp.where(kept, f, best[None])), values)


def _continued(log_p: Function, f: Array, possible: Function) -> Function:
    """Return log p with straight lines, where possible, beyond the places in f where it is known.

    p has few digits before it underflows, so a tail's line starts `_ROUGH` above its last value.
    """
    f, values = lax.stop_gradient(f), _values(log_p, f)
    values = jnp.where(jnp.isfinite(values), values, -jnp.inf)

    def end(side: int) -> tuple[Array, Array, Array]:
        place = jnp.where(jnp.isfinite(values), side * f, -jnp.inf)

        def higher(index: Array, by: float) -> Array:
            least = at(values, index) + by
            outermost = jnp.argmax(jnp.where(values > least[None], place, -jnp.inf), axis=0)
            return jnp.where(at(values, outermost) > least, outermost, index)

        second = higher(first := higher(last := jnp.argmax(place, axis=0), _ROUGH), _FALL)
        flat = jnp.abs(at(f, last) - at(f, first)) >= jnp.abs(at(f, first) - at(f, second))
        start = jnp.where(flat, last, first)
        slope = (at(values, start) - at(values, second)) / (at(f, start) - at(f, second))
        return at(f, last)[None], at(f, start)[None], jnp.nan_to_num(slope)[None]

    (lowest, low, rise), (highest, high, fall) = end(-1), end(1)

    def whole(f: Array) -> Array:
        known = (f >= lowest) & (f <= highest)
        inside = jnp.where(known, f, jnp.clip(f, low, high))
        line = rise * jnp.minimum(f - low, 0.0) + fall * jnp.maximum(f - high, 0.0)
        line = jnp.where(known, 0.0, jnp.where(possible(f), line, -jnp.inf))
        return log_p(inside) + line

    return whole


def _peak_at_link(
    log_p: Function, terms: Array, log_integral: ArrayLike, mean: Array, sd: Array
) -> Array:
    """Return whether p at f = 0, if near, shows a peak that the terms at fixed nodes miss, [N]."""
    # A likelihood that is flat on both sides of a narrow peak near 0, such as a Beta distribution
    # of a logit, can hide the peak from two rules.
    at_zero, u = _values(log_p, jnp.zeros_like(mean)[None])[0], jnp.abs(mean / sd)
    higher = at_zero > jnp.max(lax.stop_gradient(terms), axis=0) + 0.1
    far = (u >= 8) & (at_zero - 0.5 * u**2 > log_integral - 15)
    return higher & (far | (u < 8) & (sd > 2))  # fixed nodes of a narrow f resolve a link's bend


def _weighted_sum(weights: Array, terms: Array) -> Array:
    """Sum over nodes. A node of weight 0 does not count, whatever its term."""
    return jnp.sum(weights * jnp.where(weights > 0, terms, 0.0), axis=0)


def choose(value: Array, good: Array, better: Callable[..., Array], *args: Array) -> Array:
    """Return value if it is good in all rows, else better(*args) in the rows where it is not."""
    good = lax.stop_gradient(good)
    if BRIEF.get():
        return jnp.where(good, value, jnp.nan)
    # Without it a derivative keeps the panels' intermediate values, as zeros where they are unused.
    replace = lambda *a: jnp.where(good, value, jax.checkpoint(better)(*a))  # noqa: E731
    return lax.cond(_all(good), lambda *_: value, replace, *args)


@custom_vmap
def _all(good: Array) -> Array:
    """Return whether all entries are true, over a batch of `jax.vmap` too.

    `lax.cond` with one condition for the whole batch runs one branch; with many it runs both.
    """
    return jnp.all(good)


@_all.def_vmap
def _all_of_batch(size: int, batched: list[bool], good: Array) -> tuple[Array, bool]:
    return _all(good), False


def _panels(centres: list[Array], bulk: Array) -> tuple[Array, Array]:
    """Return nodes u and log weights, [Q, N], of an expectation over N(0, 1).

    Panels shrink towards the centres. The integrand is negligible 10 beyond 0 and the `bulk`.
    """
    rows = centres[0]
    offsets = np.concatenate([-_SHRINKING, [0.0], _SHRINKING])[:, None]
    ends = [c[None] + jnp.asarray(offsets, rows.dtype) for c in centres]
    ends.append(jnp.broadcast_to(jnp.asarray(_CENTRAL, rows.dtype)[:, None], (9, *rows.shape)))
    low, high = jnp.minimum(bulk, 0.0)[None] - 10, jnp.maximum(bulk, 0.0)[None] + 10
    ends = jnp.sort(jnp.clip(jnp.concatenate(ends), low, high), axis=0)
    middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    x, w = (jnp.asarray(a, rows.dtype)[:, None, None] for a in _LEGENDRE)
    u = (middle[None] + half[None] * x).reshape(-1, *rows.shape)
    width = (half[None] * w).reshape(-1, *rows.shape)
    log_w = jnp.log(width) - 0.5 * u**2 - 0.5 * np.log(2 * np.pi)
    return lax.stop_gradient((u, log_w))


def _centres(log_p: Function, mean: Array, sd: Array, kinds: tuple[Interval, ...]) -> list[Array]:
    """Return places found by repeated choices of an interval, one for each kind, [N] each."""
    mean, sd = lax.stop_gradient((mean, sd))
    links = jnp.asarray(_LINKS, sd.dtype)[:, None] - mean[None]
    links = links / jnp.maximum(sd, 1e-30)[None]
    start = jnp.broadcast_to(jnp.asarray(_SEARCH, sd.dtype)[:, None], (len(_SEARCH), *mean.shape))
    start = jnp.sort(jnp.clip(jnp.concatenate([start, links]), -_FAR, _FAR), axis=0)
    inner = jnp.asarray(np.linspace(0, 1, 10), sd.dtype)[:, None, None]

    def chosen(u: Array, values: Array) -> tuple[Array, Array]:
        low, high = zip(*(kind(u[:, k], values[:, k]) for k, kind in enumerate(kinds)), strict=True)
        return jnp.stack(low), jnp.stack(high)

    def again(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        u = low[None] + (high - low)[None] * inner  # [10, kinds, N]
        values = _values(log_p, _nodes(mean, sd, u.reshape(-1, *mean.shape)))
        return chosen(u, values.reshape(u.shape))

    values = _values(log_p, _nodes(mean, sd, start))
    every = (len(start), len(kinds), *mean.shape)
    first = chosen(*(jnp.broadcast_to(a[:, None], every) for a in (start, values)))
    low, high = lax.fori_loop(1, _ZOOMS, again, first)
    return list(0.5 * (low + high))


# From places u, [S, N], and values of log p to the ends of an interval that holds a feature.
Interval = Callable[[Array, Array], tuple[Array, Array]]


def _peak(u: Array, values: Array) -> tuple[Array, Array]:
    """Enclose the largest log p."""
    best = jnp.argmax(jnp.nan_to_num(values, nan=-jnp.inf), axis=0)
    return at(u, jnp.maximum(best - 1, 0)), at(u, jnp.minimum(best + 1, len(u) - 1))


def _mode(u: Array, values: Array) -> tuple[Array, Array]:
    """Enclose the mode of the density p(f) N(f; mean, sd²)."""
    return _peak(u, values - 0.5 * u**2)


def _bulk(u: Array, values: Array) -> tuple[Array, Array]:
    """Enclose the largest |log p| N(f; mean, sd²), far out where log p grows exponentially."""
    return _peak(u, jnp.log(jnp.where(jnp.isfinite(values), jnp.abs(values), 0.0)) - 0.5 * u**2)


def _step(u: Array, values: Array, size: Function = jnp.abs) -> tuple[Array, Array]:
    """Enclose where p changes most, or rises or falls most."""
    largest = jnp.max(jnp.nan_to_num(values, nan=-jnp.inf), axis=0, keepdims=True)
    p = jnp.exp(values - largest)
    steepest = jnp.argmax(jnp.nan_to_num(size(p[1:] - p[:-1])), axis=0)
    return at(u, steepest), at(u, steepest + 1)


def _low(u: Array, values: Array) -> tuple[Array, Array]:
    """Enclose the lowest place where log p is known, or where p changes most if all are."""
    first = jnp.argmax(jnp.isfinite(values), axis=0)
    before = jnp.maximum(first - 1, 0)
    edge = at(u, before), at(u, before + 1)
    return jax.tree.map(lambda a, b: jnp.where(first > 0, a, b), edge, _step(u, values))


def _high(u: Array, values: Array) -> tuple[Array, Array]:
    high, low = _low(u[::-1], values[::-1])
    return low, high


def at(u: Array, index: Array) -> Array:
    return jnp.take_along_axis(u, index[None], axis=0)[0]
