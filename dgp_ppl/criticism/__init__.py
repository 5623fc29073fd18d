"""Checks of models and of approximate posteriors."""

from __future__ import annotations

from dgp_ppl.criticism._calibration import (
    Calibration,
    calibration,
    loo_pit,
    pit,
    posterior_check,
)
from dgp_ppl.criticism._chain_diagnostics import chain_diagnostics
from dgp_ppl.criticism._check_guide import GuideCheck, check_guide
from dgp_ppl.criticism._compare_posteriors import (
    Estimate,
    PosteriorComparison,
    compare_posteriors,
    energy_distance,
)
from dgp_ppl.criticism._loo import WAIC, loo, stacking, waic, weights_khat
from dgp_ppl.criticism._prediction_diagnostics import prediction_diagnostics

__all__ = [
    "WAIC",
    "Calibration",
    "Estimate",
    "GuideCheck",
    "PosteriorComparison",
    "calibration",
    "chain_diagnostics",
    "check_guide",
    "compare_posteriors",
    "energy_distance",
    "loo",
    "loo_pit",
    "pit",
    "posterior_check",
    "prediction_diagnostics",
    "stacking",
    "waic",
    "weights_khat",
]
