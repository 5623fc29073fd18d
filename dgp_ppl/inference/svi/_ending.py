"""What the losses of a fit say at its end."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from dgp_ppl.inference.runs._lines import CHECKS, Line, checked

_BLOCKS = 50  # of losses, whose means are compared
_FEW_STEPS = 100  # below this number, losses say little
_LEAST_STEPS, _SETTLED = 300, 0.0025  # of losses that have settled, and their fall per row


def loss_lines(losses: np.ndarray, num_data: int, restart_bounds: Any = None) -> Iterator[Line]:
    """Yield what the losses of all steps say: whether the fit has converged, and steadily."""
    width = len(losses) // _BLOCKS
    if len(losses) < _FEW_STEPS:
        yield checked("steps", -len(losses), f"{len(losses)}")
    else:
        per_row = np.asarray(losses[-width * _BLOCKS :], np.float64) / num_data
        # Noise from differences of neighbours, which a trend or a jump hardly changes.
        noise = 1.4826 * np.median(np.abs(np.diff(per_row[len(per_row) // 2 :]))) / np.sqrt(2)
        means, error = per_row.reshape(_BLOCKS, width).mean(axis=1), noise / np.sqrt(width)
        first, before, end = means[0], means[15:20].mean(), means[-5:].mean()
        jump = float((means - np.minimum.accumulate(means)).max())
        jumps = checked("loss jumps", jump - 5 * error, f"up by {jump:.2g} nats per row")
        is_still = first - end <= max(3 * error, CHECKS["loss still falls"][0])
        if is_still and jumps.verdict == "good":
            yield checked("loss moved", 1, f"{first - end:.2g} nats per row")
        # After a third of the steps, half of the rates of the cosine decay are spent. If the loss
        # falls as 1 / t, twice the steps gain half of what the second half gained.
        gain = (before - end) / 2
        text = f"{gain:.2g} nats per row by twice the steps"
        yield checked("loss still falls", gain, text, sure=gain > 2 * error)
        yield jumps
    bounds = np.sort(restart_bounds if restart_bounds is not None else [])
    if len(bounds) > 1:
        lead = float(bounds[-1] - bounds[-2]) / num_data
        yield checked("restarts disagree", lead, f"the best leads by {lead:.2g} nats per row")


def has_settled(losses: np.ndarray, num_data: Any) -> bool:
    """Return whether losses of R fits at constant rates, [R, steps], have stopped falling.

    Fits that failed do not count.
    If a loss falls as 1 / t, all further steps gain twice what the last quarter gained on the
    quarter before. The rates' own decay gains more.
    """
    steps = losses.shape[1]
    if steps < _LEAST_STEPS:
        return False
    per_row = losses[:, -(steps // 4) * 2 :] / np.asarray(num_data, float)[..., None]
    before, end = np.split(per_row[np.isfinite(per_row).all(axis=1)], 2, axis=1)
    fall = before.mean(axis=1) - end.mean(axis=1)
    noise = np.sqrt((before.var(axis=1) + end.var(axis=1)) / before.shape[1])  # of this difference
    return bool(np.all(fall + noise < _SETTLED))


def warn_of_bad_ending(fit: Any, fresh: bool) -> None:
    """Warn of what is bad in a result's losses; `fresh`: it began at no params."""
    for what, value, verdict, advice in loss_lines(fit.losses, fit.num_data, fit.restart_bounds):
        if verdict == "bad" and (fresh or what != "loss moved") and len(fit.losses) >= _FEW_STEPS:
            warnings.warn(f"fit: {what}: {value}; {advice}", stacklevel=3)
