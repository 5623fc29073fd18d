"""The public names of `dgp_ppl`, each with its home; `__init__.py` imports it on first use."""

from . import (
    comparison as comparison,
    core as core,
    criticism as criticism,
    datasets as datasets,
    design as design,
    inference as inference,
    inferencedata as inferencedata,
    initialize as initialize,
    kernels as kernels,
    likelihoods as likelihoods,
    means as means,
    metrics as metrics,
    models as models,
    persistence as persistence,
    plots as plots,
    prediction as prediction,
    report as report,
    sklearn as sklearn,
)
from ._cite import cite as cite
from ._errors import (
    DataError as DataError,
    Interrupted as Interrupted,
    NonFiniteLossError as NonFiniteLossError,
)
from .comparison import (
    Comparison as Comparison,
    compare as compare,
)
from .core import (
    Grid as Grid,
    Marginals as Marginals,
    NearRows as NearRows,
    RandomFunction as RandomFunction,
    function_draws as function_draws,
    gp as gp,
    minibatch as minibatch,
)
from .criticism import (
    FitCheck as FitCheck,
    GuideCheck as GuideCheck,
    PosteriorComparison as PosteriorComparison,
    check_fit as check_fit,
    check_guide as check_guide,
    compare_posteriors as compare_posteriors,
)
from .datasets import (
    Rows as Rows,
)
from .inference import (
    SGHMC as SGHMC,
    AdjustedMCLMC as AdjustedMCLMC,
    AdversarialELBO as AdversarialELBO,
    AnnealedEvidence as AnnealedEvidence,
    BlackJAXKernel as BlackJAXKernel,
    Chains as Chains,
    Decoupled as Decoupled,
    Diffusion as Diffusion,
    DiffusionELBO as DiffusionELBO,
    FitResult as FitResult,
    FitResults as FitResults,
    Flow as Flow,
    GlobalInducing as GlobalInducing,
    Implicit as Implicit,
    ImportanceEvidence as ImportanceEvidence,
    ImportanceWeighted as ImportanceWeighted,
    LayerGuide as LayerGuide,
    MCEMResult as MCEMResult,
    MeanField as MeanField,
    ParallelTempering as ParallelTempering,
    PredictiveELBO as PredictiveELBO,
    annealed_evidence as annealed_evidence,
    diffusion_paths as diffusion_paths,
    evaluate as evaluate,
    fit as fit,
    fit_many as fit_many,
    fit_mcem as fit_mcem,
    freeze as freeze,
    importance_evidence as importance_evidence,
    run_mcmc as run_mcmc,
    transported as transported,
)
from .inferencedata import (
    to_inferencedata as to_inferencedata,
)
from .likelihoods import (
    BernoulliProbit as BernoulliProbit,
    observe as observe,
)
from .models import (
    local as local,
)
from .persistence import (
    KeptFit as KeptFit,
    export as export,
    load as load,
    save as save,
)
from .prediction import (
    LatentInputs as LatentInputs,
    LayerFunction as LayerFunction,
    Prediction as Prediction,
    function as function,
    guided as guided,
    infer_latent as infer_latent,
    latent_inputs as latent_inputs,
    layer_functions as layer_functions,
    pool as pool,
    predict as predict,
    tune_local as tune_local,
)
from .standardize import (
    Standardizer as Standardizer,
)

__version__: str
