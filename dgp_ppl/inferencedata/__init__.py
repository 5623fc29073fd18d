"""Conversion of a fit, MCMC chains or the prior to an ArviZ data tree."""

from __future__ import annotations

from dgp_ppl.inferencedata._convert import to_inferencedata
from dgp_ppl.inferencedata._draws import Draws
from dgp_ppl.inferencedata._log_likelihood import PointwiseEvaluator, PointwiseResult
from dgp_ppl.inferencedata._passes import passes_factor
from dgp_ppl.inferencedata._sites import ModelSites

__all__ = [
    "Draws",
    "ModelSites",
    "PointwiseEvaluator",
    "PointwiseResult",
    "passes_factor",
    "to_inferencedata",
]
