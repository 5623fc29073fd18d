"""Guides: approximate posteriors of models made of `dgp_ppl.gp` layers."""

from __future__ import annotations

from dgp_ppl.inference.guides._base import LayerGuide, TransportGuide
from dgp_ppl.inference.guides._decoupled import Decoupled, MeanForm
from dgp_ppl.inference.guides._global_inducing import GlobalInducing
from dgp_ppl.inference.guides._mean_field import MeanField
from dgp_ppl.inference.guides._transport import transported
from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO
from dgp_ppl.inference.guides.diffusion._guide import Diffusion, diffusion_paths
from dgp_ppl.inference.guides.diffusion._networks import DenseScore, MixerScore
from dgp_ppl.inference.guides.diffusion._process import VariancePreserving
from dgp_ppl.inference.guides.flow._bijections import SplineCoupling
from dgp_ppl.inference.guides.flow._guide import Flow
from dgp_ppl.inference.guides.implicit._guide import AdversarialELBO, Implicit
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet
from dgp_ppl.inference.programs._optimizer import adversarial_optimizer

__all__ = [
    "AdversarialELBO", "Decoupled", "DenseScore", "Diffusion", "DiffusionELBO", "DiscriminatorNet",
    "Flow", "GeneratorNet", "GlobalInducing", "Implicit", "LayerGuide", "MeanField", "MeanForm",
    "MixerScore", "SplineCoupling", "TransportGuide", "VariancePreserving", "adversarial_optimizer",
    "diffusion_paths", "transported",
]  # fmt: skip
