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
    diagonal,
    matmul,
    stored_gradient,
    weighted_squares,
)
from dgp_ppl.linalg._triangular import cholesky, triangular_inverse

__all__ = [
    "Factor",
    "as_float",
    "cholesky",
    "computed_once",
    "default_jitter",
    "deviation",
    "diagonal",
    "factorise",
    "matmul",
    "precision_factor",
    "stored_gradient",
    "triangular_inverse",
    "weighted_squares",
    "white_moments",
]
