"""The Cholesky factorisation with jitter, and the products of a sparse GP."""

from __future__ import annotations

from dgp_ppl.linalg._factor import Factor, default_jitter, factorise, white_moments
from dgp_ppl.linalg._products import weighted_squares

__all__ = ["Factor", "default_jitter", "factorise", "weighted_squares", "white_moments"]
