"""The lines of `criticism.check_fit`: what was checked, its value, a verdict, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

_VERDICTS = ("good", "look", "bad")
_NEVER = math.inf
_SLOW = (
    "draw more, or in the reference space of a fit (dgp_ppl.transported); predictions may have "
    "mixed nevertheless (dgp_ppl.criticism.prediction_diagnostics)"
)

INDEPENDENCE = "independent layers"  # of MeanField

# The numbers from which on the verdict is "look" and "bad", and what to do. Limits are by
# consequence: 0.03 nats per row separate the methods of a table, 0.3 nats are a factor of 1.35 in
# the density of every row, and an error of a share s of an sd costs s² / 2 nats. A kernel ten times
# as long as the range is linear there: its curvature is lost in the jitter. Neighbours at twice and
# three times the lengthscale have correlations of 0.14 and 0.01.
CHECKS = {
    "steps": (-100, -1, "too few to judge the fit by its losses"),
    "loss moved": (-_NEVER, 1, "raise learning_rate, or start elsewhere, if it has not converged"),
    "loss still falls": (0.03, 0.3, "run more steps, or go on with start=fit"),
    "loss jumps": (0.3, 3, "lower learning_rate, by a third first"),
    "restarts disagree": (0.03, 0.3, "run more restarts: one alone found this optimum"),
    "hidden layer": (-1e-3, _NEVER, "this is a one-layer GP: compare depth 1, or try restarts"),
    # Of data from such a model; where 3 % was not linear, intervals held 91 % and 90 %.
    INDEPENDENCE: (
        0.1,
        _NEVER,
        "at true hyperparameters 90 % intervals of MeanField held 82 % with two such "
        "layers, 70 % with three: check coverage by test=",
    ),
    "range in lengthscales": (-0.1, _NEVER, "the layer is linear: start with shorter lengthscales"),
    "gaps in lengthscales": (2, 3, "rows do not inform neighbours: start with longer lengthscales"),
    "range in periods": (-1, -0.1, "less than one period: start with a shorter one"),
    "spread of z": (-0.3, -0.1, "collapsed: use initialize.inducing_inputs, or freeze z"),
    "jitter": (30, 3000, "inducing inputs nearly coincide: use fewer, or jax_enable_x64"),
    "float32": (0.1, 0.3, "use float64 (jax_enable_x64, --x64), or fewer inducing inputs"),
    "variance clipped": (0.1, 0.3, "use float64 (jax_enable_x64, --x64)"),
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
    "R-hat": (1.05, 1.2, _SLOW),
    "ESS": (-100, -20, _SLOW),
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
    look, bad, advice = CHECKS[what]
    index = 0 if number < look or not sure else 1 if number < bad else 2
    return Line(what, value, _VERDICTS[index], advice if index else "")


def worst(lines: Iterable[Line], key: Any = max) -> list[Line]:
    """Return the line with the worst verdict, or the best one by `min`; none if there is none."""
    found = list(lines)
    return [key(found, key=lambda line: _VERDICTS.index(line.verdict))] if found else []
