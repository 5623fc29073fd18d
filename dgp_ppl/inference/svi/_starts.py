"""The choice among several starts of a fit, by the losses of short trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.svi import SVIState

from dgp_ppl.inference.runs._checkpoint import RunFolder
from dgp_ppl.inference.svi._feed import Feed
from dgp_ppl.inference.svi._loop import Outcome, TrainingLoop, run_steps
from dgp_ppl.inference.svi._loop_many import ManyLoops, ManyOutcomes, run_many_steps

__all__ = ["begin", "begin_many"]

_SHARE = 4  # a trial has one of so many steps: after a sixth, short lengthscales look too good
_END = 10  # the loss of a trial is the mean over the last of so many parts


def begin(
    loop: TrainingLoop,
    states: Sequence[SVIState],
    arrays: list[Any] | Feed,
    *,
    steps: int,
    folder: RunFolder | None,
    progress: bool | str,
    **options: Any,
) -> tuple[SVIState, Outcome]:
    """Run the first steps of a fit from each of several states, and choose the best one.

    Args:
        loop: the fit's loop.
        states: the first state of each start.
        arrays: the fit's arrays, the same for all starts.
        steps: number of steps of the whole fit.
        folder: the folder of the fit. If it has a later state, it also has the choice.
        progress: see `fit`.
        **options: options of `run_steps`.

    Returns:
        The chosen state, and what its first steps led to: none if there is one start.
    """
    if len(states) == 1:
        return states[0], Outcome(states[0])
    saved, parts, _ = (0, [], None) if folder is None else folder.read(states[0])
    if saved:
        ends = np.concatenate([part[1] for part in parts])
        first = states[int(np.argmin(ends))]
        return first, Outcome(first, ends=ends)
    outcomes: list[Outcome] = []
    for i, state in enumerate(states):
        found = run_steps(
            loop, Outcome(state), arrays, steps=steps, until=_trial(steps),
            progress=_label(progress, "fit", i, len(states)), **options,
        )  # fmt: skip
        outcomes.append(found)
        if found.interrupt is not None:
            break
    ended = [o.interrupt is None for o in outcomes]
    ends = np.array([_end(o) if e else np.nan for o, e in zip(outcomes, ended, strict=True)])
    # A trial that an interrupt ended does not compare.
    sound = [i for i, end in enumerate(ends) if np.isfinite(end)]
    best = min(sound, key=lambda i: ends[i]) if sound else 0 if all(ended) else len(ends) - 1
    return states[best], outcomes[best]._replace(interrupt=outcomes[-1].interrupt, ends=ends)


def begin_many(
    loops: ManyLoops,
    states: Sequence[SVIState],
    data: list[Any],
    *,
    num_fits: int,
    steps: int,
    progress: bool | str,
    **options: Any,
) -> ManyOutcomes:
    """Run the first steps of many fits from each of several states, and choose for each fit.

    The arguments are those of `begin`.
    """
    firsts = [ManyOutcomes(state, np.zeros((num_fits, 0)), {}) for state in states]
    if len(firsts) == 1:
        return firsts[0]
    outcomes: list[ManyOutcomes] = []
    for i, first in enumerate(firsts):
        found = run_many_steps(
            loops, first, data, steps=steps, until=_trial(steps),
            progress=_label(progress, f"{num_fits} fits", i, len(states)), **options,
        )  # fmt: skip
        if found.interrupt is not None:
            # A trial that ended early does not compare.
            chosen = _choose(outcomes, _trial(steps)) if outcomes else found
            if len(chosen.failures) == num_fits:
                chosen = found
            return chosen._replace(interrupt=found.interrupt)
        outcomes.append(found)
    return _choose(outcomes, _trial(steps))


def _trial(steps: int) -> int:
    """Return the number of steps of a trial."""
    return max(1, steps // _SHARE)


def _label(progress: bool | str, default: str, number: int, num: int) -> bool | str:
    if not progress:
        return False
    return f"{default if progress is True else progress}, start {number + 1}/{num}"


def _end(outcome: Outcome) -> float:
    """Return the loss at the end of a trial."""
    if outcome.failed is not None:
        return np.inf
    return float(outcome.losses[-max(1, len(outcome.losses) // _END) :].mean())


def _choose(outcomes: Sequence[ManyOutcomes], steps: int) -> ManyOutcomes:
    """Return the best trial of so many steps of each fit."""
    num_fits = len(outcomes[0].losses)
    # A trial stops where all fits have failed.
    losses = np.full((len(outcomes), num_fits, steps), np.nan)
    for padded, outcome in zip(losses, outcomes, strict=True):
        padded[:, : outcome.losses.shape[1]] = outcome.losses
    ends = losses[:, :, -max(1, steps // _END) :].mean(axis=2).T
    for s, outcome in enumerate(outcomes):
        ends[list(outcome.failures), s] = np.inf
    best, fits = np.argmin(ends, axis=1), np.arange(num_fits)
    failures = {
        i: outcomes[best[i]].failures[i] for i in fits.tolist() if np.isinf(ends[i, best[i]])
    }
    last = [o.before for o in outcomes if o.before is not None]
    whole = [o.before[1] for o in outcomes if o.before and o.losses.shape[1] == steps]
    trees = [(o.states, before[0]) for o, before in zip(outcomes, last, strict=True)]
    states, before = _chosen(trees, best)
    return ManyOutcomes(
        states, losses[best, fits], failures, before=(before, max(whole, default=1)), ends=ends
    )


@jax.jit
def _chosen(trees: Sequence[Any], best: jax.Array) -> Any:
    """Return the leaves of a tree for each fit, stacked along the first axis of all leaves."""
    return jax.tree.map(lambda *each: jnp.stack(each)[best, jnp.arange(len(best))], *trees)
