"""Guides, objectives, samplers, the evidence, and the training loop."""

from __future__ import annotations

from dgp_ppl._partition import Call
from dgp_ppl.inference._blocks import PassProgram
from dgp_ppl.inference._handlers import data_plates, freeze, survey
from dgp_ppl.inference._objectives import ImportanceWeighted, PredictiveELBO
from dgp_ppl.inference._optimizer import default_optimizer
from dgp_ppl.inference._params import Declared, checked_params, declared_params
from dgp_ppl.inference._pickling import Portable
from dgp_ppl.inference._summary import Summarized, list_arrays, program_name
from dgp_ppl.inference.evidence import (
    AnnealedEvidence,
    ImportanceEvidence,
    annealed_evidence,
    importance_evidence,
    log_mean,
    why_no_evidence,
)
from dgp_ppl.inference.guides import (
    AdversarialELBO,
    Decoupled,
    DenseScore,
    Diffusion,
    DiffusionELBO,
    DiscriminatorNet,
    GeneratorNet,
    GlobalInducing,
    Implicit,
    LayerGuide,
    MeanField,
    MeanForm,
    MixerScore,
    OrnsteinUhlenbeck,
    TransportGuide,
    VariancePreserving,
    adversarial_optimizer,
    diffusion_paths,
    discriminator_gap,
    transported,
)
from dgp_ppl.inference.samplers import SGHMC, Chains, MCEMResult, fit_mcem, run_mcmc
from dgp_ppl.inference.svi import (
    FitProgram,
    FitResult,
    FitResults,
    evaluate,
    fit,
    fit_many,
    fit_program,
)

__all__ = [
    "SGHMC",
    "AdversarialELBO",
    "AnnealedEvidence",
    "Call",
    "Chains",
    "Declared",
    "Decoupled",
    "DenseScore",
    "Diffusion",
    "DiffusionELBO",
    "DiscriminatorNet",
    "FitProgram",
    "FitResult",
    "FitResults",
    "GeneratorNet",
    "GlobalInducing",
    "Implicit",
    "ImportanceEvidence",
    "ImportanceWeighted",
    "LayerGuide",
    "MCEMResult",
    "MeanField",
    "MeanForm",
    "MixerScore",
    "OrnsteinUhlenbeck",
    "PassProgram",
    "Portable",
    "PredictiveELBO",
    "Summarized",
    "TransportGuide",
    "VariancePreserving",
    "adversarial_optimizer",
    "annealed_evidence",
    "checked_params",
    "data_plates",
    "declared_params",
    "default_optimizer",
    "diffusion_paths",
    "discriminator_gap",
    "evaluate",
    "fit",
    "fit_many",
    "fit_mcem",
    "fit_program",
    "freeze",
    "importance_evidence",
    "list_arrays",
    "log_mean",
    "program_name",
    "run_mcmc",
    "survey",
    "transported",
    "why_no_evidence",
]
