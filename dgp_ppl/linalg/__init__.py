"""The Cholesky factorisation with jitter, and the products of a sparse GP."""

from __future__ import annotations

from dgp_ppl.linalg._factor import (
    Factor,
    default_jitter,
    factorise,
    precision_factor,
    white_moments,
)
from dgp_ppl.linalg._products import (
    as_float,
    computed_once,
    deviation,
    matmul,
    stored_gradient,
    weighted_squares,
)

__all__ = [
    "Factor",
    "as_float",
    "computed_once",
    "default_jitter",
    "deviation",
    "factorise",
    "matmul",
    "precision_factor",
    "stored_gradient",
    "weighted_squares",
    "white_moments",
]
