"""Warm-up of the microcanonical kernels: scales of coordinates, step size and momentum length."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.infer.hmc_util import dual_averaging

from dgp_ppl.inference.samplers.exact import Flat

__all__ = [
    "AcceptanceSearch",
    "AutocorrelationLength",
    "EnergySearch",
    "Moments",
    "Move",
    "Tuner",
    "Tuning",
    "TurnLength",
]

_WINDOWS = (0.1, 0.2, 0.35, 0.55)  # ends of: the burn-in, and three windows that learn the scales
_LENGTH_END = 0.85  # end of the window that learns the length; the rest settles the step size
_LEAST_DRAWS = 10  # of a window that changes the scales
_BATCHES, _LEAST_BATCHES = 10, 8
_LEAST_MEMORY = 10.0  # steps that the energy search remembers, besides half of those so far
_SPREAD = 1.5  # in log step size, of the steps that the energy search trusts
_LEAST_ERROR = 1e-8  # of squared energy errors relative to the target, against zeros
_SHRINKAGE = 0.8  # of the step size after a step that is not finite
_FIRST_STEP = 0.1  # times sqrt(d)
_MOST_STRETCH = 4.0  # of the length at the end of its window


class Moments(NamedTuple):
    """Welford's running moments of values [d].

    Attributes:
        count: number of values.
        mean: their mean, [d].
        square: sum of squared deviations from the mean, [d].
    """

    count: Array
    mean: Flat
    square: Flat

    @staticmethod
    def empty(like: Flat) -> Moments:
        """Return the moments of no values."""
        return Moments(jnp.zeros((), like.dtype), jnp.zeros_like(like), jnp.zeros_like(like))

    def with_value(self, value: Flat) -> Moments:
        """Return the moments with one more value."""
        count = self.count + 1
        before = value - self.mean
        mean = self.mean + before / count
        return Moments(count, mean, self.square + before * (value - mean))

    @property
    def variance(self) -> Flat:
        """The unbiased variance, [d]; 0 of a single value."""
        return self.square / jnp.maximum(self.count - 1, 1)


class EnergyState(NamedTuple):
    """Steps of an `EnergySearch`, weighted sums of 1 and of error / step⁶, largest step size."""

    steps: Array
    weight: Array
    total: Array
    largest: Array


@dataclasses.dataclass(frozen=True)
class EnergySearch:
    """The step size at which the energy error of a step has a given variance.

    The variance of a second-order integrator's error grows with the sixth power of the step size
    (Robnik et al. 2023). Each step estimates the factor. The estimates are averaged over
    about the last half of the steps, with smaller weights for errors far from the target.

    Args:
        variance: the target of E[error²] for each dimension.
        dim: dimensions d.
    """

    variance: float
    dim: int

    def init(self, step_size: Array) -> EnergyState:
        zero = jnp.zeros_like(step_size)
        return EnergyState(zero, zero, zero, jnp.full_like(step_size, jnp.inf))

    def update(
        self, state: EnergyState, step_size: Array, report: Array
    ) -> tuple[EnergyState, Array, Array]:
        """Take the step's energy error in nats; NaN of a step that was not finite."""
        sound = jnp.isfinite(report)
        error = jnp.square(jnp.where(sound, report, 0)) / (self.dim * self.variance) + _LEAST_ERROR
        # log error is 6 log(step size / best step size).
        weight = jnp.where(sound, jnp.exp(-0.5 * jnp.square(jnp.log(error) / (6 * _SPREAD))), 0)
        decay = jnp.where(sound, 1 - 2 / (state.steps + _LEAST_MEMORY), 1)
        new = EnergyState(
            state.steps + 1,
            decay * state.weight + weight,
            decay * state.total + weight * error / step_size**6,
            jnp.where(sound, state.largest, jnp.minimum(state.largest, _SHRINKAGE * step_size)),
        )
        found = jnp.where(new.weight > 0, (new.total / new.weight) ** (-1 / 6), step_size)
        found = jnp.minimum(found, new.largest)
        return new, found, found


@dataclasses.dataclass(frozen=True)
class AcceptanceSearch:
    """The step size with a given mean acceptance probability, by NumPyro's dual averaging.

    Args:
        target: acceptance probability, in (0, 1).
    """

    target: float

    def init(self, step_size: Array) -> Any:
        begin, _ = dual_averaging()
        center: Any = jnp.log(10 * step_size)  # larger steps cost less: try them
        return begin(center)

    def update(self, state: Any, step_size: Array, report: Array) -> tuple[Any, Array, Array]:
        """Take the acceptance probability of a proposal."""
        _, update = dual_averaging()
        state = update(self.target - report, state)
        return state, jnp.exp(state[0]), jnp.exp(state[1])


class BatchState(NamedTuple):
    """Sum of the current batch's values, its size, and moments of the finished batches' means."""

    total: Flat
    count: Array
    means: Moments


@dataclasses.dataclass(frozen=True)
class AutocorrelationLength:
    """The length of trajectories at which draws forget their start.

    Trajectories that are too short walk at random: the autocorrelation time falls with the square
    of the length. Batch means estimate that time, in draws.
    """

    def first(self, radius: Array) -> Array:
        """Return a quarter of the circle on which draws of a Gaussian move around its mean."""
        return 0.5 * jnp.pi * radius

    def init(self, position: Flat) -> BatchState:
        empty = Moments.empty(position)
        return BatchState(jnp.zeros_like(position), empty.count, empty)

    def update(self, state: BatchState, tuning: Tuning, move: Move, window: Array) -> BatchState:
        total, count = state.total + move.position, state.count + 1
        full = count >= window // _BATCHES
        fresh = BatchState(jnp.zeros_like(total), jnp.zeros_like(count), state.means)
        finished = fresh._replace(means=state.means.with_value(total / count))
        return _where(full, finished, BatchState(total, count, state.means))

    def final(self, state: BatchState, tuning: Tuning, window: Array) -> Array:
        size = jnp.maximum(window // _BATCHES, 1)
        time = size * state.means.variance / jnp.maximum(tuning.draws.variance, 1e-30)
        stretch = jnp.clip(jnp.sqrt(jnp.mean(time)), 1 / _MOST_STRETCH, _MOST_STRETCH)
        enough = (state.means.count >= _LEAST_BATCHES) & jnp.isfinite(stretch)
        return tuning.length * jnp.where(enough, stretch, 1)


class TurnState(NamedTuple):
    """Start of the current path, distance and turns so far, and whether the last step turned."""

    start: Flat
    distance: Array
    turns: Array
    turned: Array


@dataclasses.dataclass(frozen=True)
class TurnLength:
    """The distance after which a path without noise turns back, divided by pi.

    A path turns back where its distance from the start begins to fall, as in NUTS. For draws of a
    Gaussian on a circle around its mean that is half of the circle, so L is its radius.
    """

    def first(self, radius: Array) -> Array:
        return radius

    def init(self, position: Flat) -> TurnState:
        zero = jnp.zeros((), position.dtype)
        return TurnState(position, zero, zero, jnp.zeros((), bool))

    def update(self, state: TurnState, tuning: Tuning, move: Move, window: Array) -> TurnState:
        away = (move.position - state.start) / tuning.scale
        turned = away @ move.momentum < 0
        return TurnState(
            jnp.where(turned, move.position, state.start),
            state.distance + tuning.step_size,
            state.turns + turned,
            turned,
        )

    def final(self, state: TurnState, tuning: Tuning, window: Array) -> Array:
        # The last path is half done, on average.
        return state.distance / (state.turns + 0.5) / jnp.pi


class Move(NamedTuple):
    """A step of the chain, for its tuning.

    Attributes:
        position: values after it, [d].
        momentum: after it, [d].
        report: what the search of the step size learns from: an energy error in nats, or an
            acceptance probability.
    """

    position: Flat
    momentum: Flat
    report: Array


class Tuning(NamedTuple):
    """What warm-up has learned.

    Attributes:
        step_size: of the next step, in units of the scaled coordinates.
        length: distance L over which the momentum loses its direction, in the same units.
        scale: unit of each coordinate, [d].
        search: state of the step size's search.
        draws: moments of the window's values.
        path: state of the length's rule.
        measuring: whether the next step is in the window that learns the length.
    """

    step_size: Array
    length: Array
    scale: Flat
    search: Any
    draws: Moments
    path: Any
    measuring: Array


@dataclasses.dataclass(frozen=True)
class Tuner:
    """The rules of warm-up. Chains that run together are tuned one by one.

    Args:
        search: the rule for the step size.
        rule: the rule for the length.
        step_size: a step size to keep, or None to search for one.
        length: a length L to keep, or None to learn it.
        precondition: learn a scale for each coordinate.
    """

    search: EnergySearch | AcceptanceSearch
    rule: AutocorrelationLength | TurnLength
    step_size: float | None
    length: float | None
    precondition: bool

    def init(self, position: Flat) -> Tuning:
        """Return the tuning before the first step."""
        root = jnp.sqrt(jnp.asarray(len(position), position.dtype))
        step_size = _FIRST_STEP * root if self.step_size is None else self.step_size
        step_size = jnp.asarray(step_size, position.dtype)
        length = self.rule.first(root) if self.length is None else self.length
        return Tuning(
            step_size=step_size,
            length=jnp.asarray(length, position.dtype),
            scale=jnp.ones_like(position),
            search=self.search.init(step_size),
            draws=Moments.empty(position),
            path=self.rule.init(position),
            measuring=jnp.zeros((), bool),
        )

    def update(self, tuning: Tuning, step: Array, num_warmup: Array, move: Move) -> Tuning:
        """Return the tuning after a step of warm-up; after warm-up it stays as it is."""
        ends = [jnp.floor(f * num_warmup).astype(jnp.int32) for f in (*_WINDOWS, _LENGTH_END)]
        done, window = step + 1, ends[-1] - ends[-2]
        new = self._searched(tuning, move, done == num_warmup)
        new = new._replace(
            draws=tuning.draws.with_value(move.position),
            path=self.rule.update(tuning.path, tuning, move, window),
        )
        rescales = jnp.stack([done == e for e in ends[1:-1]]).any()
        new = _where(rescales, self._rescaled(new), new)
        if self.length is None:
            length = self.rule.final(new.path, new, window)
            last = (done == ends[-1]) & (window > 0)
            new = new._replace(
                length=jnp.where(last, length, new.length),
                measuring=(done >= ends[-2]) & (done < ends[-1]),
            )
        # Each window begins anew.
        ended = jnp.stack([done == e for e in ends]).any()
        fresh = new._replace(draws=Moments.empty(move.position), path=self.rule.init(move.position))
        return _where(step < num_warmup, _where(ended, fresh, new), tuning)

    def _searched(self, tuning: Tuning, move: Move, last: Array) -> Tuning:
        if self.step_size is not None:
            return tuning
        search, trial, best = self.search.update(tuning.search, tuning.step_size, move.report)
        return tuning._replace(search=search, step_size=jnp.where(last, best, trial))

    def _rescaled(self, tuning: Tuning) -> Tuning:
        """Return the tuning at the end of a window that learns the scales."""
        count, variance = tuning.draws.count, tuning.draws.variance
        # A few draws are shrunk to a small scale as in Stan's warm-up.
        variance = (count * variance + 5e-3) / (count + 5)
        scale = jnp.sqrt(variance) if self.precondition else tuning.scale
        length = self.rule.first(jnp.sqrt(jnp.sum(variance / jnp.square(scale))))
        found = tuning._replace(
            scale=scale,
            length=length if self.length is None else tuning.length,
            search=self.search.init(tuning.step_size),
        )
        return _where(count >= _LEAST_DRAWS, found, tuning)


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
