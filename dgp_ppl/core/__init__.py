"""Sparse Gaussian processes as random functions at one sample site."""

from __future__ import annotations

from dgp_ppl.core._conditional import Grid, Sparse, covariance
from dgp_ppl.core._gp import DrawMode, RandomFunction, function_draws, gp
from dgp_ppl.core._handover import (
    HANDOVER,
    Handover,
    LayerSite,
    guide_site,
    handover_of,
    hidden_layers,
    is_layer,
    layer_of,
    with_handover,
)
from dgp_ppl.core._inducing import (
    AbstractInducing,
    DiagonalInducing,
    FullInducing,
    SharedInducing,
    TransportInducing,
    cholesky_factor,
    project,
)
from dgp_ppl.core._marginals import Marginals
from dgp_ppl.core._minibatch import minibatch, padded, rows_on, stratified, whole_plates

__all__ = [
    "HANDOVER",
    "AbstractInducing",
    "DiagonalInducing",
    "DrawMode",
    "FullInducing",
    "Grid",
    "Handover",
    "LayerSite",
    "Marginals",
    "RandomFunction",
    "SharedInducing",
    "Sparse",
    "TransportInducing",
    "cholesky_factor",
    "covariance",
    "function_draws",
    "gp",
    "guide_site",
    "handover_of",
    "hidden_layers",
    "is_layer",
    "layer_of",
    "minibatch",
    "padded",
    "project",
    "rows_on",
    "stratified",
    "whole_plates",
    "with_handover",
]
