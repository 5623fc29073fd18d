"""Warm-up of the microcanonical kernels: scales of coordinates, step size and momentum length."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.infer.hmc_util import dual_averaging

from dgp_ppl.inference.samplers.blackjax_kernels._kernel import Flat

__all__ = ["AcceptanceSearch", "EnergySearch", "Moments", "Tuner", "Tuning"]

_WINDOWS = (0.1, 0.25, 0.45, 0.7)  # ends of: the burn-in, and three windows that learn the scales
_LENGTH_END = 0.85  # end of the window that learns the length; the rest settles the step size
_LEAST_DRAWS = 10  # of a window that changes the scales
_BATCHES, _LEAST_BATCHES = 16, 8
_MEMORY = 50.0  # steps that the energy search remembers
_SPREAD = 1.5  # in log step size, of the steps that the energy search trusts
_LEAST_ERROR = 1e-8  # of squared energy errors relative to the target, against zeros
_SHRINKAGE = 0.8  # of the step size after a step that is not finite
_FIRST_STEP = 0.1  # times sqrt(d)
_MOST_STRETCH = 4.0  # of the length at the end of its window

SearchT = TypeVar("SearchT")


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


class StepSearch(Protocol[SearchT]):
    """A rule that finds a step size from what steps report."""

    def init(self, step_size: Array) -> SearchT:
        """Return the state of a search that begins at this step size."""
        ...

    def update(
        self, state: SearchT, step_size: Array, report: Array
    ) -> tuple[SearchT, Array, Array]:
        """Return the state, the next step size, and the best so far, after a step's report."""
        ...


class EnergyState(NamedTuple):
    """Weighted sums of an `EnergySearch`: of weights, of error / step⁶; the largest step size."""

    weight: Array
    total: Array
    largest: Array


@dataclasses.dataclass(frozen=True)
class EnergySearch:
    """The step size at which the energy error of a step has a given variance.

    The variance of a second-order integrator's error grows with the sixth power of the step size
    (Robnik et al. 2023, section 5). Each step estimates the factor. The estimates are averaged over
    recent steps, with smaller weights for errors that are far from the target's.

    Args:
        variance: the target of E[error²] for each dimension.
        dim: dimensions d.
    """

    variance: float
    dim: int

    def init(self, step_size: Array) -> EnergyState:
        zero = jnp.zeros_like(step_size)
        return EnergyState(zero, zero, jnp.full_like(step_size, jnp.inf))

    def update(
        self, state: EnergyState, step_size: Array, report: Array
    ) -> tuple[EnergyState, Array, Array]:
        """Take the step's energy error in nats; NaN of a step that was not finite."""
        sound = jnp.isfinite(report)
        error = jnp.square(jnp.where(sound, report, 0)) / (self.dim * self.variance) + _LEAST_ERROR
        # log error is 6 log(step size / best step size).
        weight = jnp.where(sound, jnp.exp(-0.5 * jnp.square(jnp.log(error) / (6 * _SPREAD))), 0)
        decay = jnp.where(sound, (_MEMORY - 1) / (_MEMORY + 1), 1)
        new = EnergyState(
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
        return begin(jnp.log(10 * step_size))  # larger steps cost less: try them

    def update(self, state: Any, step_size: Array, report: Array) -> tuple[Any, Array, Array]:
        """Take the acceptance probability of a proposal."""
        _, update = dual_averaging()
        state = update(self.target - report, state)
        return state, jnp.exp(state[0]), jnp.exp(state[1])


class Tuning(NamedTuple):
    """What warm-up has learned.

    Attributes:
        step_size: of the next step, in units of the scaled coordinates.
        length: distance L over which the momentum loses its direction, in the same units.
        scale: unit of each coordinate, [d].
        search: state of the step size's search.
        draws: moments of the window's values.
        batch: sum of the values of the current batch, and moments of the finished batches' means.
    """

    step_size: Array
    length: Array
    scale: Flat
    search: Any
    draws: Moments
    batch: tuple[Flat, Moments]


@dataclasses.dataclass(frozen=True)
class Tuner(Generic[SearchT]):
    """The rules of warm-up. Chains that run together are tuned one by one.

    Args:
        search: the rule for the step size.
        damping: exponent of the autocorrelation time in the length.
        step_size: a step size to keep, or None to search for one.
        length: a length L to keep, or None to learn it.
        precondition: learn a scale for each coordinate.
    """

    search: Any
    langevin: bool
    step_size: float | None
    length: float | None
    precondition: bool

    def init(self, position: Flat) -> Tuning:
        """Return the tuning before the first step."""
        root = jnp.sqrt(jnp.asarray(len(position), position.dtype))
        step_size = _FIRST_STEP * root if self.step_size is None else self.step_size
        step_size = jnp.asarray(step_size, position.dtype)
        length = jnp.asarray(root if self.length is None else self.length, position.dtype)
        empty = Moments.empty(position)
        return Tuning(
            step_size=step_size,
            length=length,
            scale=jnp.ones_like(position),
            search=self.search.init(step_size),
            draws=empty,
            batch=(jnp.zeros_like(position), empty),
        )

    def update(
        self, tuning: Tuning, step: Array, num_warmup: Array, position: Flat, report: Array
    ) -> Tuning:
        """Return the tuning after a step of warm-up; after warm-up it stays as it is."""
        ends = [jnp.floor(f * num_warmup).astype(jnp.int32) for f in (*_WINDOWS, _LENGTH_END)]
        done = step + 1
        new = self._searched(tuning, report, done == num_warmup)
        new = new._replace(draws=tuning.draws.with_value(position))
        new = self._with_batches(new, done - ends[-2], ends[-1] - ends[-2], position)
        learned = jnp.stack([done == e for e in ends[1:-1]]).any()
        new = _where(learned, self._rescaled(new, len(position)), new)
        new = _where(done == ends[-1], self._with_length(new, ends[-1] - ends[-2]), new)
        # Each window begins anew.
        ended = jnp.stack([done == e for e in ends]).any()
        empty = Moments.empty(position)
        fresh = new._replace(draws=empty, batch=(jnp.zeros_like(position), empty))
        return _where(step < num_warmup, _where(ended, fresh, new), tuning)

    def _searched(self, tuning: Tuning, report: Array, last: Array) -> Tuning:
        if self.step_size is not None:
            return tuning
        search, trial, best = self.search.update(tuning.search, tuning.step_size, report)
        return tuning._replace(search=search, step_size=jnp.where(last, best, trial))

    def _with_batches(self, tuning: Tuning, done: Array, size: Array, position: Flat) -> Tuning:
        total, means = tuning.batch
        total, length = total + position, jnp.maximum(size // _BATCHES, 1)
        full = (done > 0) & (done % length == 0)
        finished = (jnp.zeros_like(total), means.with_value(total / length))
        return tuning._replace(batch=_where(full, finished, (total, means)))

    def _rescaled(self, tuning: Tuning, dim: int) -> Tuning:
        """Return the tuning at the end of a window that learns the scales."""
        count, variance = tuning.draws.count, tuning.draws.variance
        # A few draws are shrunk to the unit scale as in Stan's warm-up.
        variance = (count * variance + 5e-3) / (count + 5)
        scale = jnp.sqrt(variance) if self.precondition else tuning.scale
        length = jnp.sqrt(jnp.sum(variance / jnp.square(scale)))
        found = tuning._replace(
            scale=scale,
            length=length if self.length is None else tuning.length,
            search=self.search.init(tuning.step_size),
        )
        return _where(count >= _LEAST_DRAWS, found, tuning)

    def _with_length(self, tuning: Tuning, size: Array) -> Tuning:
        """Return the tuning at the end of the window that learns the length."""
        if self.length is not None:
            return tuning
        means = tuning.batch[1]
        per_batch = jnp.maximum(size // _BATCHES, 1)
        times = per_batch * means.variance / jnp.maximum(tuning.draws.variance, 1e-30)
        time = jnp.mean(times)
        if self.langevin:
            stretch = jnp.sqrt(0.4 * tuning.step_size * time / tuning.length)
        else:
            stretch = jnp.sqrt(time)
        stretch = jnp.clip(stretch, 0.5, _MOST_STRETCH)
        enough = (means.count >= _LEAST_BATCHES) & jnp.isfinite(stretch)
        return tuning._replace(length=tuning.length * jnp.where(enough, stretch, 1))


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
