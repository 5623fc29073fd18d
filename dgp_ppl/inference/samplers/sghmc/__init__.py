"""Stochastic-gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from dgp_ppl.inference.samplers.sghmc._sghmc import SGHMC, SGHMCState

__all__ = ["SGHMC", "SGHMCState"]
