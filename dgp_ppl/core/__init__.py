"""Sparse Gaussian processes as random functions at one sample site."""

from __future__ import annotations

from dgp_ppl.core._conditional import Grid
from dgp_ppl.core._gp import RandomFunction, function_draws, gp
from dgp_ppl.core._handover import Handover, LayerSite, guide_site
from dgp_ppl.core._inducing import (
    AbstractInducing,
    DiagonalInducing,
    FullInducing,
    SharedInducing,
    TransportInducing,
)
from dgp_ppl.core._marginals import Marginals
from dgp_ppl.core._minibatch import minibatch
from dgp_ppl.core._near import NearRows

__all__ = [
    "AbstractInducing", "DiagonalInducing", "FullInducing", "Grid", "Handover", "LayerSite",
    "Marginals", "NearRows", "RandomFunction", "SharedInducing", "TransportInducing",
    "function_draws", "gp", "guide_site", "minibatch",
]  # fmt: skip
