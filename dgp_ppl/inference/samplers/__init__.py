"""MCMC kernels and runs, and Monte Carlo EM."""

from dgp_ppl.inference.samplers._mcem import MCEMResult, fit_mcem
from dgp_ppl.inference.samplers._mcmc import Chains, run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC

__all__ = ["SGHMC", "Chains", "MCEMResult", "fit_mcem", "run_mcmc"]
