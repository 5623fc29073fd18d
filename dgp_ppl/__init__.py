"""Deep Gaussian processes as probabilistic programs, on NumPyro.

A deep GP is a NumPyro model: `gp` draws a layer, `observe` attaches a likelihood, and `minibatch`
enters the data plate. A guide such as `MeanField` or `GlobalInducing` approximates its posterior.

>>> import numpy as np
>>> import numpyro
>>> import numpyro.distributions as dist
>>> from jax import random
>>> import dgp_ppl as dgp
>>> def model(x, y=None, *, z):
...     noise = numpyro.param("noise", 0.1, constraint=dist.constraints.positive)
...     f1 = dgp.gp("l1", dgp.kernels.Matern52.learned("l1", 1), z, mean=dgp.means.identity)
...     f2 = dgp.gp("l2", dgp.kernels.Matern52.learned("l2", 1), z)
...     with dgp.minibatch(x, y) as (x, y):
...         f = f2(f1.sample(x))
...         numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)
>>> x = np.linspace(-1, 1, 20)[:, None]
>>> y, z = np.sin(3 * x[:, 0]), x[::4]
>>> guide = dgp.MeanField(model)
>>> result = dgp.fit(random.key(0), model, guide, x, y, z=z, steps=20, progress=False)
>>> dgp.predict(random.key(1), model, guide, result.params, x[:3], z=z).mean.shape
(3,)

The names below are the ones that most programs need. Each room, such as `dgp_ppl.inference`,
exports the rest.
"""

from __future__ import annotations

from dgp_ppl import (
    comparison,
    core,
    criticism,
    datasets,
    inference,
    inferencedata,
    initialize,
    kernels,
    likelihoods,
    means,
    metrics,
    models,
    persistence,
    prediction,
)  # fmt: skip
from dgp_ppl._errors import DataError, Interrupted, NonFiniteLossError
from dgp_ppl.comparison import Comparison, compare
from dgp_ppl.core import Grid, Marginals, RandomFunction, function_draws, gp, minibatch
from dgp_ppl.criticism import (
    GuideCheck,
    PosteriorComparison,
    check_guide,
    compare_posteriors,
    energy_distance,
)  # fmt: skip
from dgp_ppl.datasets import Rows
from dgp_ppl.inference import (
    MCLMC,
    SGHMC,
    AdjustedMCLMC,
    AdversarialELBO,
    AnnealedEvidence,
    BlackJAXKernel,
    Chains,
    Decoupled,
    Diffusion,
    DiffusionELBO,
    FitResult,
    FitResults,
    Flow,
    GlobalInducing,
    Implicit,
    ImportanceEvidence,
    ImportanceWeighted,
    LayerGuide,
    MCEMResult,
    MeanField,
    ParallelTempering,
    PredictiveELBO,
    annealed_evidence,
    diffusion_paths,
    discriminator_gap,
    evaluate,
    fit,
    fit_many,
    fit_mcem,
    freeze,
    importance_evidence,
    run_mcmc,
    transported,
)  # fmt: skip
from dgp_ppl.inferencedata import to_inferencedata
from dgp_ppl.likelihoods import BernoulliProbit, observe
from dgp_ppl.persistence import KeptFit, export, load, save
from dgp_ppl.prediction import (
    LatentInputs,
    LayerFunction,
    Prediction,
    guided,
    infer_latent,
    latent_inputs,
    layer_functions,
    pool,
    predict,
)  # fmt: skip
from dgp_ppl.standardize import Standardizer

__all__ = [
    "MCLMC",
    "SGHMC",
    "AdjustedMCLMC",
    "AdversarialELBO",
    "AnnealedEvidence",
    "BernoulliProbit",
    "BlackJAXKernel",
    "Chains",
    "Comparison",
    "DataError",
    "Decoupled",
    "Diffusion",
    "DiffusionELBO",
    "FitResult",
    "FitResults",
    "Flow",
    "GlobalInducing",
    "Grid",
    "GuideCheck",
    "Implicit",
    "ImportanceEvidence",
    "ImportanceWeighted",
    "Interrupted",
    "KeptFit",
    "LatentInputs",
    "LayerFunction",
    "LayerGuide",
    "MCEMResult",
    "Marginals",
    "MeanField",
    "NonFiniteLossError",
    "ParallelTempering",
    "PosteriorComparison",
    "Prediction",
    "PredictiveELBO",
    "RandomFunction",
    "Rows",
    "Standardizer",
    "annealed_evidence",
    "check_guide",
    "compare",
    "compare_posteriors",
    "comparison",
    "core",
    "criticism",
    "datasets",
    "diffusion_paths",
    "discriminator_gap",
    "energy_distance",
    "evaluate",
    "export",
    "fit",
    "fit_many",
    "fit_mcem",
    "freeze",
    "function_draws",
    "gp",
    "guided",
    "importance_evidence",
    "infer_latent",
    "inference",
    "inferencedata",
    "initialize",
    "kernels",
    "latent_inputs",
    "layer_functions",
    "likelihoods",
    "load",
    "means",
    "metrics",
    "minibatch",
    "models",
    "observe",
    "persistence",
    "pool",
    "predict",
    "prediction",
    "run_mcmc",
    "save",
    "to_inferencedata",
    "transported",
]

__version__ = "0.2.0"
