"""BlackJAX's samplers as NumPyro kernels: microcanonical Langevin, and any other."""

from __future__ import annotations

from dgp_ppl.inference.samplers.blackjax_kernels._general import BlackJAXKernel
from dgp_ppl.inference.samplers.blackjax_kernels._microcanonical import MCLMC, AdjustedMCLMC

__all__ = ["MCLMC", "AdjustedMCLMC", "BlackJAXKernel"]
