"""The loop of long runs: blocks of steps with a progress bar, checkpoints and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dgp_ppl._progress import Progress
from dgp_ppl.inference.runs._checkpoint import RunFolder


class Block(NamedTuple):
    """Some steps of a run."""

    state: Any  # the state after them
    steps: int  # their number
    columns: list[np.ndarray] | None  # arrays with a row for each draw; None without draws
    note: str  # for the progress bar


class Run(NamedTuple):
    """A run that is over, or was interrupted."""

    state: Any
    steps: int
    columns: list[np.ndarray]  # of all blocks, concatenated; empty without draws
    interrupt: KeyboardInterrupt | None


def run_blocks(
    advance: Callable[[Any, int], Block], state: Any, total: int, *, label: str,
    progress: bool | str, folder: RunFolder | None, every: int,
) -> Run:  # fmt: skip
    """Advance a state to `total` steps, from where the folder's last checkpoint is.

    `advance` makes some steps, given the state and the number of steps before; checkpoints are at
    least `every` steps apart.
    """
    steps, saved_draws, state = (0, [], state) if folder is None else folder.read(state, total)
    draws: list[list[np.ndarray]] = []  # since the last checkpoint
    saved, interrupt = steps, None
    try:
        with Progress(progress, total, label, done=steps) as bar:
            while steps < total:
                block = advance(state, steps)
                new = [] if block.columns is None else [block.columns]
                # An interrupt never falls between assignments of one statement.
                state, steps, draws = block.state, steps + block.steps, draws + new
                bar.update(block.steps, block.note)
                if folder is not None and (steps - saved >= every or steps >= total):
                    folder.write(steps, state, draws)
                    saved_draws, draws, saved = saved_draws + draws, [], steps
    except KeyboardInterrupt as error:
        interrupt = error
    columns = [np.concatenate(c) for c in zip(*saved_draws, *draws, strict=True)]
    return Run(state, steps, columns, interrupt)
