"""Samplers as NumPyro kernels, runs of any kernel, and Monte Carlo EM."""

from __future__ import annotations

from dgp_ppl.inference.samplers._blackjax import BlackJAXKernel
from dgp_ppl.inference.samplers._chains import Chains
from dgp_ppl.inference.samplers._mcem import MCEMResult, fit_mcem
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._microcanonical import AdjustedMCLMC
from dgp_ppl.inference.samplers._sghmc import SGHMC
from dgp_ppl.inference.samplers._tempering import ParallelTempering

__all__ = [
    "SGHMC", "AdjustedMCLMC", "BlackJAXKernel", "Chains", "MCEMResult", "ParallelTempering",
    "fit_mcem", "run_mcmc",
]  # fmt: skip
