"""Statistics of log weights: their log mean, its standard error, and reasons to doubt both."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from dgp_ppl.inference.evidence._smc import ACCEPTANCE, Run

_FEWEST_ISLANDS = 8
LEAST_WORTH = 0.25  # of the particles' number
_LOW_ACCEPTANCE = 0.5  # on average over a tenth of the temperatures
_SAME = 0.05  # nats between islands that do not matter
_APART = 6.0  # variance between islands, relative to what chance gives


class Estimate(NamedTuple):
    """The log of the mean weight of all particles."""

    log_evidence: float  # the estimate
    standard_error: float  # jackknife estimate over islands, or the families' where it is larger
    log_weights: np.ndarray  # of the particles, [G, B]
    effective_particles: float  # the number of independent draws with the same variance of the mean


def estimate(log_weights: np.ndarray, ancestors: np.ndarray) -> Estimate:
    """Return the log mean of weights [G, B] in G independent islands of dependent particles.

    Resampling equalises the weights of particles, but not of families (particles with a common
    ancestor). So the effective number is computed from the families' weights (Lee & Whiteley 2018),
    by first ancestors [G, B].
    """
    islands = np.asarray(logsumexp(log_weights, axis=1), np.float64)
    value, error, _ = log_mean(islands - math.log(log_weights.shape[1]))
    totals = np.exp(log_weights - log_weights.max())
    families = [np.bincount(a, w) for a, w in zip(ancestors, totals, strict=True)]
    flat = np.concatenate(families)
    effective = float(flat.sum() ** 2 / np.sum(flat**2))
    # Eight islands that agree by chance have too small an error, and families know it.
    by_families = math.sqrt(max(1 / effective - 1 / log_weights.size, 0.0))
    return Estimate(value, max(error, by_families), log_weights, effective)


def log_mean(w: np.ndarray) -> tuple[float, float, float]:
    """Return the log of the mean weight, its standard error, and the effective number of weights.

    The error is a jackknife estimate. The weights' sample variance would give a far smaller one if
    a few weights dominate the sum; leaving out the largest reveals them.

    Args:
        w: log weights, [S].
    """
    log_sum: Any = logsumexp(w)
    num, total = len(w), float(log_sum)
    effective = float(1 / np.sum(np.exp(w - total) ** 2))
    others = np.where(np.eye(num, dtype=bool), -np.inf, w)
    without = np.asarray(logsumexp(others, axis=1), np.float64)
    error = math.sqrt((num - 1) * without.var())
    return total - math.log(num), error, effective


def doubts(found: Estimate, run: Run, ratio: np.ndarray) -> tuple[str, ...]:
    """Return reasons why a run's standard error may be too small; `ratio` is of its end, [G, B]."""
    texts, num, islands = [], found.log_weights.size, len(found.log_weights)
    if islands < _FEWEST_ISLANDS:
        texts.append(
            f"{islands} islands hardly tell the error (Student's t with {islands - 1} degrees of "
            f"freedom); take num_islands={_FEWEST_ISLANDS} or more"
        )
    if (effective := found.effective_particles) < LEAST_WORTH * num:
        texts.append(
            f"{num} particles are worth {effective:.1f} independent ones, so the error is rough, "
            "and the value may be off by as much; take more temperatures, particles or (with "
            "target='bound') num_noise"
        )
    if (apart := _between_islands(found.log_weights, run.ancestors, ratio)) > _APART:
        texts.append(
            "the islands' mean log densities differ more than particles of one island do (variance "
            f"ratio {apart:.1f}, wanted about 1), so they may be in different modes or not "
            "converged; take more temperatures, leapfrogs or particles"
        )
    parts = np.array_split(run.acceptance, 10)
    lowest = min(float(part.mean()) for part in parts if len(part))
    if lowest < _LOW_ACCEPTANCE:
        texts.append(
            f"acceptance falls to {lowest:.2f} (wanted about {ACCEPTANCE}), so the particles move "
            "too little; take more temperatures"
        )
    return tuple(texts)


def _between_islands(log_weights: np.ndarray, ancestors: np.ndarray, ratio: np.ndarray) -> float:
    """Return the variance of islands' mean log ratio, relative to independent particles."""
    weights = np.exp(log_weights - np.asarray(logsumexp(log_weights, axis=1, keepdims=True)))
    mean = np.sum(weights * ratio, axis=1)
    within = np.sum(weights * np.square(ratio - mean[:, None]), axis=1)
    # Particles of one family are not independent.
    families = [np.bincount(a, w) for a, w in zip(ancestors, weights, strict=True)]
    worth = np.array([1 / np.sum(np.square(f)) for f in families])
    known = worth > 1
    if known.sum() < 2:
        return 0.0
    expected = np.mean(within[known] / (worth[known] - 1))
    return float(np.var(mean[known], ddof=1) / (expected + _SAME**2))
