"""Guides: approximate posteriors of models made of `dgp_ppl.gp` layers."""

from __future__ import annotations

from dgp_ppl.inference.guides._base import LayerGuide, TransportGuide
from dgp_ppl.inference.guides._decoupled import Decoupled, MeanForm
from dgp_ppl.inference.guides._global_inducing import GlobalInducing
from dgp_ppl.inference.guides._mean_field import MeanField
from dgp_ppl.inference.guides._transport import transported
from dgp_ppl.inference.guides.diffusion import (
    DenseScore,
    Diffusion,
    DiffusionELBO,
    MixerScore,
    VariancePreserving,
    diffusion_paths,
)
from dgp_ppl.inference.guides.flow import Flow, SplineCoupling
from dgp_ppl.inference.guides.implicit import (
    AdversarialELBO,
    DiscriminatorNet,
    GeneratorNet,
    Implicit,
    adversarial_optimizer,
)

__all__ = [
    "AdversarialELBO",
    "Decoupled",
    "DenseScore",
    "Diffusion",
    "DiffusionELBO",
    "DiscriminatorNet",
    "Flow",
    "GeneratorNet",
    "GlobalInducing",
    "Implicit",
    "LayerGuide",
    "MeanField",
    "MeanForm",
    "MixerScore",
    "SplineCoupling",
    "TransportGuide",
    "VariancePreserving",
    "adversarial_optimizer",
    "diffusion_paths",
    "transported",
]
