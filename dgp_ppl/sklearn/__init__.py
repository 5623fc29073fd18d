"""Deep GPs as scikit-learn estimators: for pipelines, grid searches and cross-validation.

`DeepGPRegressor` and `DeepGPClassifier` fit any method and model of `compare`. Import them from
here; ``import dgp_ppl`` does not load scikit-learn.
"""

from __future__ import annotations

from dgp_ppl.sklearn._classifier import DeepGPClassifier
from dgp_ppl.sklearn._estimator import DeepGPEstimator
from dgp_ppl.sklearn._regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPEstimator", "DeepGPRegressor"]
