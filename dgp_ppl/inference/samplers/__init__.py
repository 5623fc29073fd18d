"""MCMC: stochastic-gradient HMC, runs of any NumPyro kernel, and Monte Carlo EM."""

from __future__ import annotations

from dgp_ppl.inference.samplers._chains import Chains
from dgp_ppl.inference.samplers._mcem import MCEMResult, fit_mcem
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC

__all__ = ["SGHMC", "Chains", "MCEMResult", "fit_mcem", "run_mcmc"]
