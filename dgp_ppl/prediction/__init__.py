"""Predictions of fitted models, and the functions that their layers represent."""

from __future__ import annotations

from dgp_ppl.prediction._function import Function, FunctionDraws, function
from dgp_ppl.prediction._guided import guided
from dgp_ppl.prediction._latent_inputs import LatentInputs, infer_latent, latent_inputs
from dgp_ppl.prediction._layer_functions import LayerFunction, layer_functions
from dgp_ppl.prediction._pool import pool
from dgp_ppl.prediction._predict import predict
from dgp_ppl.prediction._prediction import Prediction
from dgp_ppl.prediction._tune_local import tune_local

__all__ = [
    "Function", "FunctionDraws", "LatentInputs", "LayerFunction", "Prediction", "function",
    "guided", "infer_latent", "latent_inputs", "layer_functions", "pool", "predict", "tune_local",
]  # fmt: skip
