"""Deep GPs as scikit-learn estimators: for pipelines, grid searches and cross-validation.

`DeepGPRegressor` and `DeepGPClassifier` fit any method and model of `compare`. Import them from
here; ``import dgp_ppl`` does not load scikit-learn. `SkproRegressor` has skpro's interface.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from dgp_ppl.sklearn._classifier import DeepGPClassifier
from dgp_ppl.sklearn._estimator import DeepGPEstimator
from dgp_ppl.sklearn._regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPEstimator", "DeepGPRegressor"]


def __getattr__(name: str) -> Any:
    if name != "SkproRegressor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("skpro") is None:
        raise ImportError("SkproRegressor: wanted skpro; python -m pip install 'dgp_ppl[skpro]'")
    from dgp_ppl.sklearn._skpro import SkproRegressor

    return SkproRegressor
