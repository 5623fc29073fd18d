"""What a prediction is scored by, task by task."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dgp_ppl import metrics
from dgp_ppl.prediction import Prediction

__all__ = ["SCORES", "score"]

_OF_CLASSES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": metrics.accuracy,
    "log_loss": metrics.log_loss,
    "ece": metrics.expected_calibration_error,
    "brier": metrics.brier,
}
_REGRESSION = ("rmse", "log_density", "crps", "coverage90")

SCORES: dict[str, tuple[str, ...]] = {
    "regression": _REGRESSION,
    "binary": (*_OF_CLASSES, "auc"),
    "multiclass": tuple(_OF_CLASSES),
}


def score(task: str, prediction: Prediction, y: np.ndarray) -> dict[str, float | None]:
    """The scores of a task, `SCORES[task]`, at held-out rows; those of a regression in y's units.

    Args:
        task: "regression", "binary" or "multiclass".
        prediction: at N inputs.
        y: what was observed there, [N].

    Returns:
        By name; None for the AUC of rows of a single class.
    """
    if task == "regression":
        return {
            "rmse": metrics.rmse(y, prediction.mean),
            "log_density": metrics.mean_log_density(prediction.log_prob(y)),
            "crps": float(prediction.crps(y).mean()),
            "coverage90": metrics.interval_coverage(y, *prediction.interval(0.9)),
        }
    probabilities = prediction.probabilities
    found: dict[str, float | None] = {
        name: function(y, probabilities) for name, function in _OF_CLASSES.items()
    }
    if task == "binary":
        both = len(np.unique(y)) == 2
        found["auc"] = metrics.auc(y, probabilities[:, 1]) if both else None
    return found
