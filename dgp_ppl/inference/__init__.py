"""Guides, objectives, samplers, the evidence, and the training loop."""

from __future__ import annotations

from dgp_ppl._partition import Call
from dgp_ppl.inference.evidence import (
    AnnealedEvidence,
    ImportanceEvidence,
    annealed_evidence,
    importance_evidence,
    log_mean,
)
from dgp_ppl.inference.guides import (
    AdversarialELBO,
    Decoupled,
    DenseScore,
    Diffusion,
    DiffusionELBO,
    DiscriminatorNet,
    Flow,
    GeneratorNet,
    GlobalInducing,
    Implicit,
    LayerGuide,
    MeanField,
    MeanForm,
    MixerScore,
    SplineCoupling,
    TransportGuide,
    VariancePreserving,
    adversarial_optimizer,
    diffusion_paths,
    transported,
)
from dgp_ppl.inference.programs._handlers import freeze
from dgp_ppl.inference.programs._optimizer import default_optimizer, natural_adam
from dgp_ppl.inference.samplers import (
    SGHMC,
    AdjustedMCLMC,
    BlackJAXKernel,
    Chains,
    MCEMResult,
    ParallelTempering,
    fit_mcem,
    run_mcmc,
)
from dgp_ppl.inference.svi import (
    FitResult,
    FitResults,
    evaluate,
    fit,
    fit_many,
    fit_program,
    minimize,
)
from dgp_ppl.inference.svi._objectives import ImportanceWeighted, PredictiveELBO

__all__ = [
    "SGHMC", "AdjustedMCLMC", "AdversarialELBO", "AnnealedEvidence", "BlackJAXKernel", "Call",
    "Chains", "Decoupled", "DenseScore", "Diffusion", "DiffusionELBO", "DiscriminatorNet",
    "FitResult", "FitResults", "Flow", "GeneratorNet", "GlobalInducing", "Implicit",
    "ImportanceEvidence", "ImportanceWeighted", "LayerGuide", "MCEMResult", "MeanField", "MeanForm",
    "MixerScore", "ParallelTempering", "PredictiveELBO", "SplineCoupling", "TransportGuide",
    "VariancePreserving", "adversarial_optimizer", "annealed_evidence", "default_optimizer",
    "diffusion_paths", "evaluate", "fit", "fit_many", "fit_mcem", "fit_program", "freeze",
    "importance_evidence", "log_mean", "minimize", "natural_adam", "run_mcmc", "transported",
]  # fmt: skip
