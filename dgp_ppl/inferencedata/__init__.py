"""Conversion of a fit, MCMC chains or the prior to an ArviZ data tree."""

from __future__ import annotations

from dgp_ppl.inferencedata._convert import to_inferencedata

__all__ = ["to_inferencedata"]
