"""Plots of fits, layers, predictions and comparisons; each returns a matplotlib figure.

They need the extra ``dgp_ppl[plots]``. ArviZ plots posteriors and calibration, from the trees of
`dgp_ppl.to_inferencedata`: ``arviz_plots.plot_forest``, ``plot_rank``, ``plot_ppc_pit``.
"""

from __future__ import annotations

from dgp_ppl.plots._design import maps, sensitivity, study
from dgp_ppl.plots._figure import COLORS
from dgp_ppl.plots._functions import function_bands, hidden_maps, layers
from dgp_ppl.plots._paths import diffusion_paths
from dgp_ppl.plots._predictions import predicted_against_observed, validation
from dgp_ppl.plots._training import training_curves

__all__ = [
    "COLORS", "diffusion_paths", "function_bands", "hidden_maps", "layers", "maps",
    "predicted_against_observed", "sensitivity", "study", "training_curves",
    "validation",
]  # fmt: skip
