"""Sequential Monte Carlo: particles that pass through temperatures in independent islands."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.evidence._target import Arrays, Points, Target

ACCEPTANCE = 0.8  # the acceptance rate that step sizes are adapted to
_FEWEST, _MOST = 20, 2000  # temperatures that a pilot may ask for
_PILOT_ESS = 0.9  # conditional effective sample size from one temperature of the pilot to the next
_PILOT_MOVES = 2  # transitions at each of its temperatures
_GAIN = 0.7  # change of the log step size per deviation of the acceptance rate
_FIRST_SIZE = 0.5  # initial step size in one dimension
_PRIOR_DRAWS = 20  # weight of a common scale relative to the particles' own scales, in draws
_LEAST_ESS = 0.5  # particles of an island are resampled below
_SMALLEST_STEP = 1e-12  # of the inverse temperature


class Plan(NamedTuple):
    """What a pilot run found out; K temperatures."""

    betas: np.ndarray  # inverse temperatures from 0 to 1, [K + 1]
    sizes: np.ndarray  # step sizes, [K]
    scales: np.ndarray  # scale of each coordinate, [K, d]


class Run(NamedTuple):
    """The result of a run through all K temperatures."""

    points: Points  # the final particles, [C, ...]
    # Their log weights, [G, C / G] in G islands; the mean weight of an island is an unbiased
    # estimate of the ratio of the normalising constants.
    log_weights: np.ndarray
    # The first particle that each descends from, counted in its island, [G, C / G].
    ancestors: np.ndarray
    acceptance: np.ndarray  # the mean acceptance rate at each temperature, [K]
    resampled: np.ndarray  # how often islands were resampled at each temperature, [K]


def anneal(
    key: PRNGKey, target: Target, z: Array, noise: Array, plan: Plan, arrays: Arrays, bar: Any
) -> Run:
    """Move islands of particles z [G, B, d], with keys [G, S] of their noise, through a plan.

    Each island is a sequential Monte Carlo sampler (Del Moral et al. 2006) of its own. At each
    temperature its particles are weighted, resampled if they are worth less than half of their
    number (systematically), and moved. Nothing else links particles, so islands are independent.
    """
    G, B = z.shape[:2]
    noise = jnp.repeat(noise, B, axis=0)
    points = target.points(z.reshape(G * B, -1), noise, arrays)
    key, rng = _generator(key)
    log_weights, ancestors = np.zeros((G, B)), np.tile(np.arange(B), (G, 1))
    acceptance, resampled = [], []
    for k, (size, scale) in enumerate(zip(plan.sizes, plan.scales, strict=True)):
        beta, step = plan.betas[k + 1], plan.betas[k + 1] - plan.betas[k]
        log_weights = log_weights + step * _ratios(points).reshape(G, B)
        chosen, log_weights = _resampled(rng, log_weights)
        if (is_new := np.any(chosen != np.arange(B), axis=1)).any():
            ancestors = np.take_along_axis(ancestors, chosen, axis=1)
            points = _taken(points, (chosen + B * np.arange(G)[:, None]).ravel())
        points, rate = target.move(random.fold_in(key, k), points, noise, beta, size, scale, arrays)
        acceptance.append(float(jnp.mean(rate)))
        resampled.append(int(is_new.sum()))
        bar.update(1)
    return Run(points, log_weights, ancestors, np.array(acceptance), np.array(resampled))


def pilot(
    key: PRNGKey, target: Target, z: Array, noise: Array, arrays: Arrays, temperatures: int | None,
    bar: Any,
) -> Plan:  # fmt: skip
    """Find the temperatures and the moves by an adaptive run of one island, z [C, d].

    From one temperature to the next the conditional effective sample size of the particles is 90 %
    (Zhou et al. 2016), so neighbours are equally far apart. `temperatures` of them, also equally
    far apart, make the plan. The distance is the sd of the incremental weights relative to their
    mean; if moves mix perfectly, the relative variance of the estimate is the squared length of the
    path divided by temperatures times particles. The default number makes it one divided by the
    number of particles: they are then worth half of it.
    """
    C = len(z)
    noise = jnp.broadcast_to(noise, (C, *noise.shape))
    points = target.points(z, noise, arrays)
    if not np.isfinite(_ratios(points)).any():
        raise ValueError(
            "annealed_evidence: the log density is finite at no draw that annealing starts from; "
            "look for NaN in the data or the params, or start elsewhere (start='prior')"
        )
    key, rng = _generator(key)
    log_size, log_weights = float(np.log(_FIRST_SIZE * target.dim**-0.25)), np.zeros((1, C))
    betas, distances, log_sizes, scales = [0.0], [], [], []
    while betas[-1] < 1:
        ratio = _ratios(points)
        step, distance = _step(log_weights[0], ratio, 1 - betas[-1])
        log_weights = log_weights + step * ratio
        betas.append(min(1.0, betas[-1] + step))
        scale = _scales(np.asarray(points.z, np.float64), log_weights[0])
        chosen, log_weights = _resampled(rng, log_weights)
        points = _taken(points, chosen[0])
        for _ in range(_PILOT_MOVES):
            key, key_move = random.split(key)
            points, rates = target.move(
                key_move, points, noise, betas[-1], np.exp(log_size), scale, arrays
            )
            log_size += _GAIN * (float(jnp.mean(rates)) - ACCEPTANCE)
        distances.append(distance)
        log_sizes.append(log_size)
        scales.append(scale)
        if (num := len(betas) - 2) > 0:  # temperatures grow by similar factors: for the bar's ETA
            growth = max(np.log(betas[-1] / betas[1]) / num, 1e-3)
            bar.total = num + 1 + int(np.ceil(-np.log(betas[-1]) / growth))
        bar.update(1, f"beta {betas[-1]:.3g}")
    length = np.concatenate([[0.0], np.cumsum(distances)])
    K = temperatures or int(np.clip(np.ceil(length[-1] ** 2), _FEWEST, _MOST))
    at = np.linspace(0, length[-1], K + 1)
    found = np.interp(at, length, betas)
    found[0], found[-1] = 0.0, 1.0
    # The feedback makes sizes noisy: take the mean of a temperature and its neighbours.
    padded = np.pad(log_sizes, 1, mode="edge")
    smooth = np.exp((padded[:-2] + padded[1:-1] + padded[2:]) / 3)
    nearest = np.clip(np.searchsorted(length[1:], at[1:] - 1e-9), 0, len(scales) - 1)
    return Plan(found, np.interp(at[1:], length[1:], smooth), np.array(scales)[nearest])


def _generator(key: PRNGKey) -> tuple[PRNGKey, np.random.Generator]:
    """Return a new key, and a generator of random numbers on the host."""
    key, key_host = random.split(key)
    return key, np.random.default_rng(np.asarray(random.bits(key_host, (4,), jnp.uint32)))


def _resampled(rng: np.random.Generator, log_weights: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return which particles [G, B] go on, and their log weights; good islands keep them."""
    G, B = log_weights.shape
    top = log_weights.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)  # an island without a finite weight stays so
    weights = np.exp(log_weights - top)
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = (total[:, 0] ** 2) / np.sum(weights**2, axis=1)
        edges = np.cumsum(weights / total, axis=1)
        mean = top + np.log(total / B)
    u = (rng.random((G, 1)) + np.arange(B)) / B
    # The last edge may round to less than 1.
    found = [np.minimum(np.searchsorted(e, a), B - 1) for e, a in zip(edges, u, strict=True)]
    keeps = ~(ess < _LEAST_ESS * B)[:, None]
    chosen = np.where(keeps, np.arange(B), np.array(found))
    return chosen, np.where(keeps, log_weights, np.broadcast_to(mean, (G, B)))


def _ratios(points: Points) -> np.ndarray:
    """Return the log ratio of every particle, [C]; -inf where the density is NaN."""
    ratio = np.asarray(points.ratio, np.float64)
    return np.where(np.isnan(ratio), -np.inf, ratio)


def _taken(points: Points, rows: np.ndarray) -> Points:
    return Points(*(a[rows] for a in points))


def _step(log_weights: np.ndarray, ratio: np.ndarray, most: float) -> tuple[float, float]:
    """Return the step of beta whose conditional effective sample size is `_PILOT_ESS`; its size."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    shifted = ratio - ratio.max()

    def ess(step: float) -> float:
        increments = np.exp(step * shifted)
        return float((weights @ increments) ** 2 / (weights @ increments**2))

    if (whole := ess(most)) >= _PILOT_ESS:
        return most, float(np.sqrt(1 / whole - 1))
    low, high = np.log(_SMALLEST_STEP), np.log(most)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ess(np.exp(middle)) > _PILOT_ESS else (low, middle)
    step = float(np.exp(low))
    return step, float(np.sqrt(1 / ess(step) - 1))


def _scales(z: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """Return the sd of each coordinate of weighted particles, drawn to their geometric mean."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    ess = 1 / np.sum(weights**2)
    variance = weights @ np.square(z - weights @ z)
    if ess < 2:
        return np.ones(z.shape[1])
    log_sd = 0.5 * np.log(np.maximum(variance * ess / (ess - 1), 1e-12))
    share = ess / (ess + _PRIOR_DRAWS)
    return np.exp(share * log_sd + (1 - share) * log_sd.mean())
