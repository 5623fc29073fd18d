"""Pictures of fits and comparisons. Every function returns a matplotlib figure to be saved."""

from dgp_ppl.plots._figure import COLORS as COLORS
from dgp_ppl.plots.calibration import coverage_curves as coverage_curves
from dgp_ppl.plots.calibration import pit_histograms as pit_histograms
from dgp_ppl.plots.calibration import predicted_against_observed as predicted_against_observed
from dgp_ppl.plots.calibration import reliability as reliability
from dgp_ppl.plots.chains import diffusion_chains as diffusion_chains
from dgp_ppl.plots.functions import function_bands as function_bands
from dgp_ppl.plots.functions import hidden_lattice as hidden_lattice
from dgp_ppl.plots.functions import hidden_maps as hidden_maps
from dgp_ppl.plots.functions import layers as layers
from dgp_ppl.plots.posterior import posterior_forest as posterior_forest
from dgp_ppl.plots.posterior import posterior_pair as posterior_pair
from dgp_ppl.plots.posterior import posterior_rank as posterior_rank
from dgp_ppl.plots.scores import method_words as method_words
from dgp_ppl.plots.scores import score_dots as score_dots
from dgp_ppl.plots.training import training_curves as training_curves

__all__ = [
    "COLORS", "coverage_curves", "diffusion_chains", "function_bands", "hidden_lattice",
    "hidden_maps", "layers", "method_words", "pit_histograms", "posterior_forest", "posterior_pair",
    "posterior_rank", "predicted_against_observed", "reliability", "score_dots", "training_curves",
]  # fmt: skip
