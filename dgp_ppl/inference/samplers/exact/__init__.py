"""Kernels that need the exact density of a model."""

from __future__ import annotations

from dgp_ppl.inference.samplers.exact._kernel import Flat, FlatDensity, ModelKernel

__all__ = ["Flat", "FlatDensity", "ModelKernel"]
