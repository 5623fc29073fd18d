"""The choice among several starts of a fit, by the losses of short trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.svi import SVIState

from dgp_ppl.inference.svi._feed import Feed
from dgp_ppl.inference.svi._loop import Outcome, TrainingLoop, run_steps
from dgp_ppl.inference.svi._loop_many import ManyLoops, ManyOutcomes, run_many_steps

__all__ = ["Trials", "begin", "begin_many"]

_SHARE = 4  # a trial has one of so many steps: after a sixth, short lengthscales look too good
_END = 10  # the loss of a trial is the mean over the last of so many parts


class Trials(NamedTuple):
    """What the trials of all starts led to.

    Attributes:
        first: the state that the chosen start began with.
        outcome: where its trial ended.
        losses: the loss at the end of each trial, [S]; infinity for those that failed. None if
            there was one start, and so no trial.
    """

    first: SVIState
    outcome: Outcome
    losses: np.ndarray | None = None


def begin(
    loop: TrainingLoop,
    states: Sequence[SVIState],
    arrays: list[Any] | Feed,
    *,
    steps: int,
    num_data: int,
    progress: bool | str,
) -> Trials:
    """Run the first steps of a fit from each of several states, and return the best.

    Args:
        loop: the fit's loop.
        states: the first state of each start.
        arrays: the fit's arrays, the same for all starts.
        steps: number of steps of the whole fit.
        num_data: rows N of the data plate.
        progress: see `fit`.
    """
    if len(states) == 1:
        return Trials(states[0], Outcome(states[0], np.zeros(0)))
    outcomes: list[Outcome] = []
    for i, state in enumerate(states):
        found = run_steps(
            loop, state, arrays, steps=_trial(steps), num_data=num_data,
            progress=_label(progress, i, len(states)),
        )  # fmt: skip
        if found.interrupt is not None:
            # A trial that ended early does not compare.
            best = _best(outcomes) if outcomes else 0
            kept = outcomes[best]._replace(interrupt=found.interrupt) if outcomes else found
            return Trials(states[best], kept)
        outcomes.append(found)
    best = _best(outcomes)
    return Trials(states[best], outcomes[best], np.array([_end(o) for o in outcomes]))


def begin_many(
    loops: ManyLoops,
    states: Sequence[SVIState],
    data: list[Any],
    *,
    num_fits: int,
    steps: int,
    num_data: int | np.ndarray,
    progress: bool | str,
) -> tuple[ManyOutcomes, np.ndarray | None]:
    """Run the first steps of many fits from each of several states, and return the best of each.

    Returns:
        What the chosen trials led to, and the losses at the end of all, [R, S], as in `Trials`.
    """
    if len(states) == 1:
        return ManyOutcomes(states[0], np.zeros((num_fits, 0)), {}), None
    outcomes: list[ManyOutcomes] = []
    for i, state in enumerate(states):
        found = run_many_steps(
            loops, state, data, num_fits=num_fits, steps=_trial(steps), num_data=num_data,
            progress=_label(progress, i, len(states)),
        )  # fmt: skip
        if found.interrupt is not None and outcomes:
            found = _chosen(outcomes)[0]._replace(interrupt=found.interrupt)
        if found.interrupt is not None:
            return found, None
        outcomes.append(found)
    return _chosen(outcomes)


def _trial(steps: int) -> int:
    """Return the number of steps of a trial."""
    return max(1, steps // _SHARE)


def _label(progress: bool | str, number: int, num: int) -> bool | str:
    if progress is False:
        return False
    return f"{'fit' if progress is True else progress}, start {number + 1}/{num}"


def _end(outcome: Outcome) -> float:
    """Return the loss at the end of a trial."""
    if outcome.failed is not None:
        return np.inf
    return float(outcome.losses[-max(1, len(outcome.losses) // _END) :].mean())


def _best(outcomes: Sequence[Outcome]) -> int:
    return int(np.argmin([_end(outcome) for outcome in outcomes]))


def _chosen(outcomes: Sequence[ManyOutcomes]) -> tuple[ManyOutcomes, np.ndarray]:
    """Return the best trial of each fit, and the losses at the end of all, [R, S]."""
    num_fits, steps = outcomes[0].losses.shape
    ends = np.stack([o.losses[:, -max(1, steps // _END) :].mean(axis=1) for o in outcomes], axis=1)
    for s, outcome in enumerate(outcomes):
        ends[list(outcome.failures), s] = np.inf
    best, fits = np.argmin(ends, axis=1), np.arange(num_fits)
    states = jax.tree.map(
        lambda *each: jnp.stack(each)[best, fits], *(outcome.states for outcome in outcomes)
    )
    losses = np.stack([outcome.losses for outcome in outcomes])[best, fits]
    failures = {
        i: outcomes[best[i]].failures[i] for i in fits.tolist() if np.isinf(ends[i, best[i]])
    }
    return ManyOutcomes(states, losses, failures), ends
