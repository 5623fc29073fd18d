"""Plots of fits, predictions, posteriors and comparisons; each returns a matplotlib figure."""

from __future__ import annotations

from dgp_ppl.plots._calibration import (
    coverage_curves,
    pit_histograms,
    predicted_against_observed,
    reliability,
)
from dgp_ppl.plots._figure import COLORS
from dgp_ppl.plots._functions import function_bands, hidden_lattice, hidden_maps, layers
from dgp_ppl.plots._metrics import method_label, metric_dots
from dgp_ppl.plots._paths import diffusion_paths
from dgp_ppl.plots._posterior import posterior_forest, posterior_pair, posterior_rank
from dgp_ppl.plots._training import training_curves

__all__ = [
    "COLORS",
    "coverage_curves",
    "diffusion_paths",
    "function_bands",
    "hidden_lattice",
    "hidden_maps",
    "layers",
    "method_label",
    "metric_dots",
    "pit_histograms",
    "posterior_forest",
    "posterior_pair",
    "posterior_rank",
    "predicted_against_observed",
    "reliability",
    "training_curves",
]
