"""Estimates of the log evidence by annealing and by importance sampling."""

from __future__ import annotations

from dgp_ppl.inference.evidence._annealing import AnnealedEvidence, annealed_evidence
from dgp_ppl.inference.evidence._importance import ImportanceEvidence, importance_evidence
from dgp_ppl.inference.evidence._weights import log_mean

__all__ = [
    "AnnealedEvidence", "ImportanceEvidence", "annealed_evidence", "importance_evidence",
    "log_mean",
]  # fmt: skip
