"""The checks of `criticism.check_fit`, and what the losses of a fit say at its end."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dgp_ppl.linalg import default_jitter

_BLOCKS = 50  # of losses, whose means are compared
_FEW_STEPS = 100  # below this number, losses say little
_VERDICTS = ("good", "look", "bad")
_NEVER = np.inf

# The numbers from which on the verdict is "look" and "bad", and what to do. Limits are by
# consequence: 0.03 nats per row separate the methods of a table, 0.3 nats are a factor of 1.35 in
# the density of every row, and an error of a share s of an sd costs s² / 2 nats. A kernel ten times
# as long as the range is linear there: its curvature is lost in the jitter. Neighbours at twice and
# three times the lengthscale have correlations of 0.14 and 0.01.
_CHECKS = {
    "steps": (-100, -1, "too few to judge the fit by its losses"),
    "loss moved": (-_NEVER, 1, "raise learning_rate, or start elsewhere, if it has not converged"),
    "loss still falls": (0.03, 0.3, "run more steps, or go on with start=fit"),
    "loss jumps": (0.3, 3, "lower learning_rate, by a third first"),
    "restarts disagree": (0.03, 0.3, "run more restarts: one alone found this optimum"),
    "hidden layer": (-1e-3, _NEVER, "this is a one-layer GP: compare depth 1, or try restarts"),
    "range in lengthscales": (-0.1, _NEVER, "the layer is linear: start with shorter lengthscales"),
    "gaps in lengthscales": (2, 3, "rows do not inform neighbours: start with longer lengthscales"),
    "range in periods": (-1, -0.1, "less than one period: start with a shorter one"),
    "spread of z": (-0.3, -0.1, "collapsed: use initialize.inducing_inputs, or freeze z"),
    "jitter": (30, 3000, "inducing inputs nearly coincide: use fewer, or jax_enable_x64"),
    "float32": (0.1, 0.3, "use float64 (jax_enable_x64, --x64), or fewer inducing inputs"),
    "noise at its floor": (0.1, 1, "use float64 (jax_enable_x64), and look for repeated rows"),
    "inducing inputs": (0.1, 1, "use more inducing inputs, or start them among the data"),
    "Monte Carlo error": (0.05, 0.2, "give predict more num_samples"),
    "explained variance": (-0.01, _NEVER, "all counts as noise: less noise, lower learning_rate"),
    "structure in residuals": (0.1, 0.3, "try more inducing inputs, layers or steps"),
    "outliers": (1, _NEVER, "look at these rows, or use a likelihood with heavier tails"),
    "repeated rows": (0.01, 0.2, "copies narrow intervals without evidence: remove them"),
    "sd of other sites": (1.4, 2, "no function moves with them in q: MeanField(coupled=True)"),
    "sd of parts": (1.4, 2, "only the sum of layers is right: one layer with kernel k1 + k2"),
    "k-hat": (0.7, _NEVER, "q is far from the posterior: a richer guide, or compare with NUTS"),
    "gap of the bound": (0.03, 0.3, "a richer guide could gain as much"),
    "coverage of 90 %": (0.03, 0.1, "look at noise, outliers, and how held-out rows differ"),
    "PIT": (0.05, 0.2, "targets have another shape than predictions: another likelihood"),
}


class Line(NamedTuple):
    """One check of a fit: what was checked, its value, a verdict, and what to do."""

    what: str
    value: str
    verdict: str
    advice: str = ""


def checked(what: str, number: float, value: str, sure: bool = True) -> Line:
    """Return the line of one of the checks; NaN is bad, and what is not `sure` is good."""
    look, bad, advice = _CHECKS[what]
    index = 0 if number < look or not sure else 1 if number < bad else 2
    return Line(what, value, _VERDICTS[index], advice if index else "")


def worst(lines: Iterable[Line], key: Any = max) -> list[Line]:
    """Return the line with the worst verdict, or the best one by `min`; none if there is none."""
    found = list(lines)
    return [key(found, key=lambda line: _VERDICTS.index(line.verdict))] if found else []


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
        if first - end <= max(3 * error, _CHECKS["loss still falls"][0]):
            yield checked("loss moved", 1, f"{first - end:.2g} nats per row")
        # After a third of the steps, half of the rates of the cosine decay are spent. If the loss
        # falls as 1 / t, twice the steps gain half of what the second half gained.
        gain = (before - end) / 2
        text = f"{gain:.2g} nats per row by twice the steps"
        yield checked("loss still falls", gain, text, sure=gain > 2 * error)
        jump = float((means - np.minimum.accumulate(means)).max())
        yield checked("loss jumps", jump - 5 * error, f"up by {jump:.2g} nats per row")
    bounds = np.sort(restart_bounds if restart_bounds is not None else [])
    if len(bounds) > 1:
        lead = float(bounds[-1] - bounds[-2]) / num_data
        yield checked("restarts disagree", lead, f"the best leads by {lead:.2g} nats per row")


def noise_line(noise_var: float, prior_var: float, dtype: Any) -> Line:
    """Compare the noise's variance with the floor by the jitter of a layer with this k(x, x)."""
    floor = default_jitter(dtype) * prior_var
    text = f"sd {np.sqrt(noise_var):.2g}, rounding {np.sqrt(floor):.2g}"
    return checked("noise at its floor", floor / max(noise_var, 1e-300), text)


def warn_of_bad_ending(fit: Any, fresh: bool) -> None:
    """Warn of what is bad in a result's losses; `fresh`: it began at no params."""
    for what, value, verdict, advice in loss_lines(fit.losses, fit.num_data, fit.restart_bounds):
        if verdict == "bad" and (fresh or what != "loss moved") and len(fit.losses) >= _FEW_STEPS:
            warnings.warn(f"fit: {what}: {value}; {advice}", UserWarning, stacklevel=3)
