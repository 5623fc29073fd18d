"""The denoising-diffusion guide, its process, networks and objective."""

from __future__ import annotations

from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO
from dgp_ppl.inference.guides.diffusion._guide import Diffusion
from dgp_ppl.inference.guides.diffusion._networks import DenseScore, MixerScore
from dgp_ppl.inference.guides.diffusion._paths import diffusion_paths
from dgp_ppl.inference.guides.diffusion._process import VariancePreserving

__all__ = [
    "DenseScore",
    "Diffusion",
    "DiffusionELBO",
    "MixerScore",
    "VariancePreserving",
    "diffusion_paths",
]
