"""Moments: expectations over f ~ N(mean, sd²) of functions that may grow as fast as exp(f)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from dgp_ppl.likelihoods._quadrature import TRAPEZOID, at, choose

_WIDE = 0.4 * (np.arange(240) - 119.5)  # in sd
# 64 sets of dense nodes between each other: a jump is found to 0.0016 sd.
_FINE = TRAPEZOID + (TRAPEZOID[1] - TRAPEZOID[0]) * ((np.arange(64) - 31.5) / 64)[:, None]


def far_expectation(function: Callable[[Array], Array], mean: Array, sd: Array) -> Array:
    """Return E[function(f)], [N, ...], of a function that may grow as fast as exp(f).

    E[exp(f)] is made sd above the mean. Where it overflows, its log goes on as a straight line. If
    it is not finite at once, or between finite values, within 4 sd, nor is the result. Where the
    result is finite, so are its gradients: of dense nodes, in rows where the outermost do not
    count, and of wide ones elsewhere. A jump between dense nodes costs 3e-4 of the largest value.
    """
    every, f = jax.vmap(function), _nodes(mean, sd, TRAPEZOID)
    values = lax.stop_gradient(every(f))
    events = tuple(range(f.ndim, values.ndim))
    weight = np.exp(-0.5 * TRAPEZOID**2)
    weights = jnp.asarray(weight / weight.sum(), sd.dtype)
    size = jnp.tensordot(weights, jnp.abs(values), axes=1)
    ends = jnp.maximum(jnp.abs(values[0]), jnp.abs(values[-1])) * weights[0]
    good = jnp.all(jnp.isfinite(size) & (ends <= 1e-6 * size), [i - 1 for i in events])

    def guarded(f: Array, kept: Array, values: Array) -> Array:
        # A weight of 0 times an infinite derivative would be NaN, so nodes move to a known one.
        return every(jnp.where(kept, f, nearest(f, values)[None]))

    def nearest(f: Array, values: Array) -> Array:
        far = jnp.where(jnp.all(jnp.isfinite(values), events), jnp.abs(f - mean[None]), jnp.inf)
        return lax.stop_gradient(at(f, jnp.argmin(far, axis=0)))

    terms = guarded(f, jnp.broadcast_to(good[None], f.shape), values)
    value = jnp.tensordot(weights, terms, axes=1, precision=lax.Precision.HIGHEST)
    # Half of the nodes give the same unless the function bends within a tenth of sd.
    half = 2 * jnp.tensordot(weights[::2], values[::2], axes=1)
    smooth = jnp.abs(half - lax.stop_gradient(value)) <= 1e-3 * size
    bends = good & ~jnp.all(smooth, [i - 1 for i in events])

    def fine(mean: Array, sd: Array) -> Array:
        mean, sd = jnp.where(bends, mean, nearest(f, values)), jnp.where(bends, sd, 0.0)

        def add(total: Array, nodes: tuple[Array, Array]) -> tuple[Array, None]:
            u, weights = nodes
            terms = every(_nodes(mean, sd, u))
            return total + jnp.tensordot(weights, terms, axes=1, precision="highest"), None

        density = np.exp(-0.5 * _FINE**2)
        nodes = (jnp.asarray(a, sd.dtype) for a in (_FINE, density / density.sum()))
        return lax.scan(jax.checkpoint(add), jnp.zeros_like(value), tuple(nodes))[0]

    spread = lambda a: jnp.broadcast_to(jnp.expand_dims(a, [i - 1 for i in events]), size.shape)  # noqa: E731
    value = choose(value, spread(~bends), fine, mean, sd)
    good = spread(good)

    def wide(mean: Array, sd: Array) -> Array:
        # Nodes stay where they are and the density moves, so no derivative in f can overflow.
        f, start = lax.stop_gradient((_nodes(mean, sd, _WIDE), mean))
        scale = lax.stop_gradient(jnp.where(sd > 0, sd, 1.0))
        ratio = 1 + (sd - lax.stop_gradient(sd)) / scale
        z = _nodes((start - mean) / scale / ratio, 1 / ratio, _WIDE)
        log_weights = jnp.expand_dims(-0.5 * z**2 - jnp.log(ratio)[None], events)
        log_weights = log_weights + np.log(0.4 / np.sqrt(2 * np.pi))
        u, values = jnp.asarray(_WIDE, sd.dtype), lax.stop_gradient(every(f))

        def logs_of(values: Array) -> Array:
            some = jnp.isfinite(values) & (values != 0)
            return jnp.where(some, jnp.log(jnp.abs(jnp.where(some, values, 1.0))), -1e30)

        known, terms = jnp.isfinite(values), lax.stop_gradient(logs_of(values) + log_weights)
        counts = terms > jnp.max(terms, axis=0)[None] + np.log(np.finfo(sd.dtype).eps)
        kept = jnp.all(known, events) & jnp.any(counts, events)
        values = jnp.where(jnp.expand_dims(kept, events), guarded(f, kept, values), values)
        logs = logs_of(values)
        place = jnp.arange(len(u)).reshape((-1,) + (1,) * (values.ndim - 1))
        last = jnp.max(jnp.where(known, place, 1), axis=0)
        first = jnp.min(jnp.where(known, place, len(u) - 2), axis=0)
        ends = (last, last - 1, last + 1), (first, first + 1, first - 1)
        rise, fall = (at(logs, i) - at(logs, j) for i, j, _ in ends)
        beyond = jnp.where(place > last, at(logs, last) + (place - last) * rise, -1e30)
        beyond = jnp.where(place < first, at(logs, first) + (first - place) * fall, beyond)
        log_terms = jnp.where(known, logs, beyond) + log_weights
        signs = jnp.where(jnp.isnan(values), 1.0, jnp.sign(values))
        top = lax.stop_gradient(jnp.max(log_terms, axis=0))
        # An infinite sum has no gradient, or it would be NaN in rows that share an array with it.
        finite = top < np.log(np.finfo(sd.dtype).max)
        log_terms = jnp.where(finite[None], log_terms, lax.stop_gradient(log_terms))
        found = jnp.exp(top) * jnp.sum(signs * jnp.exp(log_terms - top[None]), axis=0)
        hole = ~known & (place > first) & (place < last) & (jnp.abs(u).reshape(place.shape) < 4)
        found = jnp.where(jnp.any(hole, axis=0), at(values, jnp.argmax(hole, axis=0)), found)
        found = jnp.where(jnp.any(known, axis=0), found, values[len(u) // 2])
        most = 0.5 * np.log(np.finfo(sd.dtype).max)
        for (i, k, j), slope in zip(ends, (rise, fall), strict=True):
            inner = [at(logs, jnp.clip(i + 2 * n * (k - i), 0, len(u) - 1)) for n in (1, 2, 3)]
            growth, before = inner[0] - inner[1], inner[1] - inner[2]
            # Rounding makes the pole of 2 + exp(f). Beside that of exp(f) - 2 the line is left.
            line = (growth > 0.1) & (jnp.abs(growth - before) <= 0.05 * (1 + jnp.abs(before)))
            edge, at_edge = _last_finite(function, mean, sd, u[i], u[j])
            steps = 1 + jnp.abs(edge - u[i]) / 0.8
            line = line & (jnp.log(jnp.abs(at_edge)) < inner[0] + steps * growth + 3)
            at_once = ~at(known, j) & ~line & (at(logs, i) + 2 * jnp.maximum(slope, 0) < most)
            found = jnp.where(at_once & ((j - i) * u[i] < 3.8), at(values, j), found)
        return found

    return choose(value, good, wide, mean, sd)


def _nodes(mean: Array, sd: Array, u: np.ndarray | Array) -> Array:
    """Return f, [Q, N, ...], at places u in sd, [Q]."""
    return mean[None] + sd[None] * jnp.asarray(u.reshape((-1,) + (1,) * mean.ndim), sd.dtype)


def _last_finite(
    function: Callable[[Array], Array], mean: Array, sd: Array, known: Array, other: Array
) -> tuple[Array, Array]:
    """Return the last u, [N, ...], where function(mean + sd u) is finite, and its value there.

    It is finite where u is `known`, and not at the `other` end; mean and sd are [N].
    """
    mean, sd = lax.stop_gradient((mean, sd))

    def found(u: Array) -> Array:
        each = lambda u: function(mean + sd * u).reshape(*mean.shape, -1)  # noqa: E731
        all_u = jax.vmap(each, -1, -1)(u.reshape(*mean.shape, -1))  # each entry at all their u
        return lax.stop_gradient(jnp.diagonal(all_u, axis1=-2, axis2=-1).reshape(u.shape))

    def halved(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        finite = jnp.isfinite(found(middle))
        return jnp.where(finite, middle, ends[0]), jnp.where(finite, ends[1], middle)

    known, _ = lax.fori_loop(0, 20, halved, (known, other))
    return known, found(known)
