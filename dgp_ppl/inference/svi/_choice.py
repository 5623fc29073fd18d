"""The choice among candidates: several starts, restarts, or a fit and the params it began with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import random
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._partition import CallArrays
from dgp_ppl._static_key import Keyed
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.inference.runs._checkpoint import RunFolder
from dgp_ppl.inference.svi._feed import Feed
from dgp_ppl.inference.svi._loop import Outcome, TrainingLoop, losses_of, run_steps
from dgp_ppl.inference.svi._setup import warn_if_stuck

BOUND_DRAWS = 100  # of a bound, to compare params

_SHARE = 4  # a trial has one of so many steps: after a sixth, short lengthscales look too good
_END = 10  # the loss of a trial is the mean over the last of so many parts


def first_states(
    loop: TrainingLoop, key: Any, data: CallArrays, starts: Sequence[Params], **options: Any
) -> list[SVIState]:
    """Return the first state from the params of each start; errors name the start."""
    states = []
    for i, params in enumerate(starts):
        try:
            states.append(loop.init(key, data, params, **options))
        except ValueError as error:
            text = str(error)
            if len(starts) == 1 or not text.startswith("start"):
                raise
            raise ValueError(f"start[{i}]{text.removeprefix('start')}") from None
    return states


def bound_losses(
    key: PRNGKey, loop: TrainingLoop, loss: ELBO, candidates: Sequence[Params], data: CallArrays
) -> np.ndarray:
    """Return a loss at each candidate, [S], by the same draws; infinity if not finite."""
    program = loop.partition, Keyed(loss)
    each = random.split(key, BOUND_DRAWS), np.arange(BOUND_DRAWS)
    found = np.array([losses_of(program, each, params, data).mean() for params in candidates])
    return np.where(np.isfinite(found), found, np.inf)


def train(
    loop: TrainingLoop, states: Sequence[SVIState], arrays: CallArrays | Feed, *,
    folder: RunFolder | None = None, every: int = 1, **options: Any,
) -> tuple[SVIState, Outcome]:  # fmt: skip
    """Run all steps from the best of several first states; also return each fit's choice."""
    first, outcome = _begin(loop, states, arrays, folder=folder, **options)
    if outcome.interrupt is None and len(outcome.failures) < loop.num_fits:
        outcome = run_steps(loop, outcome, arrays, folder=folder, every=every, **options)
    if outcome.interrupt is None:
        warn_if_stuck(loop, first, outcome)
    return first, outcome


def _begin(
    loop: TrainingLoop, states: Sequence[SVIState], arrays: CallArrays | Feed, *, steps: int,
    progress: bool | str, folder: RunFolder | None, label: str = "fit", **options: Any,
) -> tuple[SVIState, Outcome]:  # fmt: skip
    """Run trials from several states; return the best, or what a folder has, and its trial."""
    firsts = [Outcome(state, np.zeros((loop.num_fits, 0))) for state in states]
    if folder is not None:
        _, parts, state = folder.read(states[0], steps)
        if parts:
            losses, *ends = (np.concatenate(column)[None] for column in zip(*parts, strict=True))
            best = int(np.argmin(ends[0])) if ends else 0
            return states[best], Outcome(state, losses, ends=ends[0] if ends else None)
    if len(states) == 1:
        return states[0], firsts[0]
    trial = max(1, steps // _SHARE)
    outcomes: list[Outcome] = []
    for i, first in enumerate(firsts):
        name = label if progress is True else progress
        outcome = run_steps(
            loop, first, arrays, steps=steps, until=trial,
            progress=bool(progress) and f"{name}, start {i + 1}/{len(states)}", **options,
        )  # fmt: skip
        if outcome.interrupt is None:
            outcomes.append(outcome)
            continue
        # A trial that ended early does not compare, but is better than nothing.
        first, chosen = _choose(loop, states, outcomes, trial) if outcomes else (states[i], outcome)
        if len(chosen.failures) == loop.num_fits:
            first, chosen = states[i], outcome._replace(ends=chosen.ends)
        return first, chosen._replace(interrupt=outcome.interrupt)
    return _choose(loop, states, outcomes, trial)


def _choose(
    loop: TrainingLoop, firsts: Sequence[SVIState], outcomes: Sequence[Outcome], steps: int
) -> tuple[SVIState, Outcome]:
    """Return the best of the trials of so many steps for each fit, and its first state."""
    # A trial stops where all fits have failed.
    losses = np.full((len(outcomes), loop.num_fits, steps), np.nan)
    for row, outcome in zip(losses, outcomes, strict=True):
        row[:, : outcome.losses.shape[1]] = outcome.losses
    ends = np.full((loop.num_fits, len(firsts)), np.nan)
    ends[:, : len(outcomes)] = losses[:, :, -max(1, steps // _END) :].mean(axis=2).T
    for s, outcome in enumerate(outcomes):
        ends[list(outcome.failures), s] = np.inf
    best, fits = np.nanargmin(ends, axis=1), range(loop.num_fits)
    failures = {i: outcomes[best[i]].failures[i] for i in fits if np.isinf(ends[i, best[i]])}
    lasts: list[Any] = [o.before for o in outcomes]
    # The last chunk of a trial to the end; if all failed before, it is not needed.
    ended = [o.before for o in outcomes if o.before and o.losses.shape[1] == steps]
    _, data, num = (*ended, *lasts)[0]
    before = loop.select([last[0] for last in lasts], best), data, num
    state = loop.select([o.state for o in outcomes], best)
    first = loop.select(firsts[: len(outcomes)], best)
    return first, Outcome(state, losses[best, fits], failures, before=before, ends=ends)
