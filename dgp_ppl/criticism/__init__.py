"""Checks of models and of approximate posteriors."""

from dgp_ppl.criticism._chain_diagnostics import chain_diagnostics
from dgp_ppl.criticism._check_guide import GuideCheck, check_guide
from dgp_ppl.criticism._compare_posteriors import (
    PosteriorComparison,
    compare_posteriors,
    energy_distance,
)
from dgp_ppl.criticism._trees import (
    WAIC,
    Calibration,
    calibration,
    loo,
    loo_pit,
    pit,
    posterior_check,
    stacking,
    waic,
    weights_khat,
)

__all__ = [
    "WAIC",
    "Calibration",
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
    "stacking",
    "waic",
    "weights_khat",
]
