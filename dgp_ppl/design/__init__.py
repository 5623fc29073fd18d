"""Choose the next runs of a costly simulator: `Study` asks, you run, it is told, it asks again.

The criteria are functions of predictions, for loops of your own.
"""

from __future__ import annotations

from dgp_ppl.design._botorch import botorch_model
from dgp_ppl.design._criteria import (
    contour_entropy,
    expected_improvement,
    global_improvement,
    log_expected_improvement,
    variance_reduction,
)
from dgp_ppl.design._record import Best
from dgp_ppl.design._replicates import Replicates, replicates
from dgp_ppl.design._sensitivity import Sensitivity, sensitivity
from dgp_ppl.design._study import Study

__all__ = [
    "Best", "Replicates", "Sensitivity", "Study", "botorch_model", "contour_entropy",
    "expected_improvement", "global_improvement", "log_expected_improvement", "replicates",
    "sensitivity", "variance_reduction",
]  # fmt: skip
