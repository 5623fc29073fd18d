"""Estimates of the log evidence."""

from dgp_ppl.inference.evidence._annealing import (
    AnnealedEvidence,
    annealed_evidence,
    log_mean,
    why_no_evidence,
)
from dgp_ppl.inference.evidence._importance import ImportanceEvidence, importance_evidence

__all__ = [
    "AnnealedEvidence",
    "ImportanceEvidence",
    "annealed_evidence",
    "importance_evidence",
    "log_mean",
    "why_no_evidence",
]
