"""The loop of many fits in one program, by `jax.vmap`."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.infer.svi import SVIState

from dgp_ppl._progress import Progress
from dgp_ppl._typing import Params
from dgp_ppl.core import padded
from dgp_ppl.inference.runs._blocks import StepProgram
from dgp_ppl.inference.svi._loop import TrainingLoop, chunk_length

__all__ = ["Failure", "ManyLoops", "ManyOutcomes", "PaddedLoop", "part", "run_many_steps"]


class PaddedLoop(TrainingLoop):
    """A training loop whose data have padding behind their rows, and their number at the end."""

    def __init__(self, loop: TrainingLoop) -> None:
        super().__init__(loop.svi, loop.partition)

    def first_state(self, key: Any, data: list[Any], params: Params | None) -> SVIState:
        """Return the first state; a program that can be traced."""
        *data, num_rows = data
        with padded(num_rows):
            return super().first_state(key, data, params)

    def run_chunk(
        self, state: SVIState, num: Any, first: Any, data: list[Any]
    ) -> tuple[SVIState, jax.Array]:
        """Run steps; a program that can be traced."""
        *data, num_rows = data
        with padded(num_rows):
            return super().run_chunk(state, num, first, data)

    def first_non_finite(self, state: SVIState, data: list[Any]) -> str:
        """Return the first param or site that is not finite in the loss of this state."""
        *data, num_rows = data
        with padded(num_rows):
            return super().first_non_finite(state, data)


@dataclasses.dataclass(frozen=True)
class ManyLoops:
    """The compiled pieces of many fits.

    Attributes:
        loop: the loop of one fit.
        axes: 0 for each of the data's arrays that has a leading axis of fits, None for the others.
    """

    loop: TrainingLoop
    axes: tuple[int | None, ...]

    def init(
        self, keys: Any, data: list[Any], params: Params | None, each: bool = False
    ) -> SVIState:
        """Return the first states; `params` replace initial values, those of each fit or of all."""
        start = _programs(self.loop, self.axes)[0 if each else 1]
        return start(keys, data, params)

    def advance(self, states: SVIState, data: list[Any], num: int) -> tuple[SVIState, np.ndarray]:
        """Run `num` <= 200 steps of all fits; returns the states and their losses, [R, num]."""
        states, parts = _programs(self.loop, self.axes)[2](states, num, data)
        losses = [np.asarray(part, np.float64)[:, :done] for part, done in parts]
        return states, np.concatenate([*losses, np.zeros((len(states.rng_key), 0))], axis=1)

    def params(self, states: SVIState) -> Params:
        """Return the constrained params of the states."""
        return jax.vmap(self.loop.params)(states)

    def data(self, data: list[Any], number: int) -> list[Any]:
        """Return the arrays of one fit."""
        return [a if ax is None else a[number] for a, ax in zip(data, self.axes, strict=True)]


@lru_cache(maxsize=32)
def _programs(loop: TrainingLoop, axes: tuple[int | None, ...]) -> tuple[Any, Any, Any]:
    """Return the programs of the first states, from params of each fit or of all, and of steps."""
    arrays = list(axes)
    each = jax.jit(jax.vmap(loop.first_state, in_axes=(0, arrays, 0)))
    shared = jax.jit(jax.vmap(loop.first_state, in_axes=(0, arrays, None)))

    def steps(
        states: SVIState, num: Any, first: Any, data: list[Any]
    ) -> tuple[SVIState, jax.Array]:
        one = lambda state, data: loop.run_chunk(state, num, first, data)  # noqa: E731
        return jax.vmap(one, in_axes=(0, arrays))(states, data)

    return each, shared, StepProgram(steps)


def part(tree: Any, number: int) -> Any:
    """Return the values of one fit. Leaves that are no arrays, such as functions, are shared."""
    return jax.tree.map(lambda a: a if callable(a) else a[number], tree)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A fit whose loss is not finite.

    Attributes:
        step: number of the step, from 0.
        state: the state before this step.
        kept: the last state whose own loss is finite.
    """

    step: int
    state: SVIState
    kept: SVIState


class ManyOutcomes(NamedTuple):
    """What the steps of many fits led to; of their first states alone, where they begin.

    Attributes:
        states: the states at the end; those of fits that failed mean nothing.
        losses: the losses, [R, steps].
        failures: the fits that failed, by number.
        interrupt: the interrupt (Ctrl-C) that ended the steps early, or None.
        before: start and length of the last chunk of steps, or None.
        ends: of several starts: the losses at the end of their trials, [R, S].
    """

    states: SVIState
    losses: np.ndarray
    failures: dict[int, Failure]
    interrupt: KeyboardInterrupt | None = None
    before: tuple[SVIState, int] | None = None
    ends: np.ndarray | None = None


def run_many_steps(
    loops: ManyLoops,
    begun: ManyOutcomes,
    data: list[Any],
    *,
    steps: int,
    num_data: int | np.ndarray,
    progress: bool | str,
    until: int | None = None,
) -> ManyOutcomes:
    """Run the steps that are left of all fits; one that fails does not stop the others.

    Args:
        loops: the fits' loops.
        begun: what the steps so far led to.
        data: the fits' arrays.
        steps: number of steps of a fit.
        num_data: rows N of the data plate, or of each fit, [R].
        progress: see `fit_many`.
        until: number of the step to stop at; None runs all.
    """
    chunk, last = chunk_length(steps), steps if until is None else until
    states, losses, failures, before = begun.states, begun.losses, begun.failures, begun.before
    num_fits = len(losses)

    def failed(number: int, first: int) -> Failure:
        """Return the failure at a step of this chunk; its steps run again."""
        state = loops.advance(states, data, first)[0]
        kept = states
        if first:
            kept = loops.advance(states, data, first - 1)[0]
        elif before is not None:
            kept = loops.advance(before[0], data, before[1] - 1)[0]
        return Failure(losses.shape[1] + first, part(state, number), part(kept, number))

    try:
        with Progress(progress, last, f"{num_fits} fits", done=losses.shape[1]) as bar:
            while losses.shape[1] < last and len(failures) < num_fits:
                num = min(chunk, last - losses.shape[1])
                after, new = loops.advance(states, data, num)
                finite = np.isfinite(new)
                found = {
                    i: failed(i, int(np.argmin(finite[i])))
                    for i in np.flatnonzero(~finite.all(axis=1)).tolist()
                    if i not in failures
                }
                all_losses = np.concatenate([losses, new], axis=1)
                # An interrupt never falls between assignments of one statement.
                before, states, losses, failures = (
                    (states, num),
                    after,
                    all_losses,
                    failures | found,
                )
                sound = [i for i in range(num_fits) if i not in failures]
                bounds = -new / np.asarray(num_data)[..., None]
                note = f"ELBO/datum {bounds[sound].mean():.4f}" if sound else "all failed"
                bar.update(num, note + f", {len(failures)} failed" * bool(failures))
    except KeyboardInterrupt as interrupt:
        return ManyOutcomes(states, losses, failures, interrupt, before, begun.ends)
    return ManyOutcomes(states, losses, failures, before=before, ends=begun.ends)
