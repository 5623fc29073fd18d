"""Deep Gaussian processes as probabilistic programs, on NumPyro."""

from dgp_ppl import datasets as datasets
from dgp_ppl import initialize as initialize
from dgp_ppl import kernels as kernels
from dgp_ppl import means as means
from dgp_ppl import metrics as metrics
from dgp_ppl import models as models
from dgp_ppl._errors import DataError as DataError
from dgp_ppl._errors import NonFiniteLossError as NonFiniteLossError
from dgp_ppl.compare import Comparison as Comparison
from dgp_ppl.compare import compare as compare
from dgp_ppl.diagnostics import to_inferencedata as to_inferencedata
from dgp_ppl.gp import Marginals as Marginals
from dgp_ppl.gp import RandomFunction as RandomFunction
from dgp_ppl.gp import function_draws as function_draws
from dgp_ppl.gp import gp as gp
from dgp_ppl.inference.adversarial import AdversarialELBO as AdversarialELBO
from dgp_ppl.inference.adversarial import discriminator_gap as discriminator_gap
from dgp_ppl.inference.annealing import AnnealedEvidence as AnnealedEvidence
from dgp_ppl.inference.annealing import annealed_evidence as annealed_evidence
from dgp_ppl.inference.decoupled import Decoupled as Decoupled
from dgp_ppl.inference.diffusion import Diffusion as Diffusion
from dgp_ppl.inference.diffusion_elbo import DiffusionELBO as DiffusionELBO
from dgp_ppl.inference.diffusion_elbo import evidence as evidence
from dgp_ppl.inference.fit import FitResult as FitResult
from dgp_ppl.inference.fit import fit as fit
from dgp_ppl.inference.global_inducing import GlobalInducing as GlobalInducing
from dgp_ppl.inference.implicit import Implicit as Implicit
from dgp_ppl.inference.mcem import MCEMResult as MCEMResult
from dgp_ppl.inference.mcem import fit_mcem as fit_mcem
from dgp_ppl.inference.mcmc import Chains as Chains
from dgp_ppl.inference.mcmc import run_mcmc as run_mcmc
from dgp_ppl.inference.mean_field import MeanField as MeanField
from dgp_ppl.inference.objectives import ImportanceWeighted as ImportanceWeighted
from dgp_ppl.inference.objectives import PredictiveELBO as PredictiveELBO
from dgp_ppl.inference.sghmc import SGHMC as SGHMC
from dgp_ppl.inference.white import transported as transported
from dgp_ppl.initialize import Standardizer as Standardizer
from dgp_ppl.minibatch import minibatch as minibatch
from dgp_ppl.observe import BernoulliProbit as BernoulliProbit
from dgp_ppl.observe import observe as observe
from dgp_ppl.predict import Prediction as Prediction
from dgp_ppl.predict import predict as predict

__version__ = "0.1.0"
