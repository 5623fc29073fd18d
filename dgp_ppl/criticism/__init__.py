"""Checks of approximate posteriors, and LOO with the checks that deep GPs need.

ArviZ has the rest, for the trees of `dgp_ppl.to_inferencedata`: ``arviz_plots.plot_ppc_pit`` and
``plot_loo_pit`` for calibration, ``plot_ppc_tstat`` for statistics of replicated data, and
``arviz_stats.compare`` for the weights of several models::

    arviz_stats.compare({name: criticism.loo(tree) for name, tree in trees.items()})
"""

from __future__ import annotations

from dgp_ppl.criticism._chain_diagnostics import chain_diagnostics
from dgp_ppl.criticism._check_fit import FitCheck, check_fit
from dgp_ppl.criticism._check_guide import GuideCheck, check_guide
from dgp_ppl.criticism._compare_posteriors import PosteriorComparison, compare_posteriors
from dgp_ppl.criticism._loo import loo, weights_khat
from dgp_ppl.criticism._prediction_diagnostics import prediction_diagnostics

__all__ = [
    "FitCheck", "GuideCheck", "PosteriorComparison", "chain_diagnostics", "check_fit",
    "check_guide", "compare_posteriors", "loo", "prediction_diagnostics", "weights_khat",
]  # fmt: skip
