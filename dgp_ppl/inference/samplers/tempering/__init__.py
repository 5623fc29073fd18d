"""Parallel tempering."""

from __future__ import annotations

from dgp_ppl.inference.samplers.tempering._parallel import ParallelTempering, TemperingState

__all__ = ["ParallelTempering", "TemperingState"]
