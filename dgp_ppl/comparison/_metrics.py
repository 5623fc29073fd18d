"""The metrics of a comparison: which a task has, their values, summaries, headings and formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dgp_ppl import metrics
from dgp_ppl.prediction import Prediction

__all__ = [
    "INFERENCE_HEADINGS",
    "METRICS",
    "PREDICTION_HEADINGS",
    "format_number",
    "format_summary",
    "predictive_metrics",
    "summarise",
]

_REGRESSION = ("rmse", "log_density", "crps", "coverage90")
_CLASSES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": metrics.accuracy,
    "log_loss": metrics.log_loss,
    "ece": metrics.expected_calibration_error,
    "brier": metrics.brier,
}
_FIT = (
    "elbo_per_datum", "restart_spread", "evidence_per_datum", "evidence_error", "gap",
    "rhat_predictions", "rhat", "ess", "divergences", "seconds", "steps",
)  # fmt: skip

METRICS: dict[str, tuple[str, ...]] = {
    "regression": (*_REGRESSION, *_FIT),
    "binary": (*_CLASSES, "auc", *_FIT),
    "multiclass": (*_CLASSES, *_FIT),
}
"""The metrics of each task: those of predictions, then those of fits."""

PREDICTION_HEADINGS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "ece": "ECE",
    "brier": "Brier",
    "auc": "AUC",
    "rmse": "RMSE",
    "log_density": "log dens.",
    "crps": "CRPS",
    "coverage90": "90 % cov.",
    "elbo_per_datum": "ELBO/datum",
    "seconds": "s",
}
"""Table headings of the metrics of predictions, with the ELBO and the time."""

INFERENCE_HEADINGS = {
    "restart_spread": "spread",
    "evidence_per_datum": "evidence",
    "evidence_error": "its error",
    "gap": "gap",
    "rhat_predictions": "R-hat pred.",
    "rhat": "R-hat v",
    "ess": "ESS",
    "divergences": "div.",
}
"""Table headings of the metrics of inference: restarts, evidence and chain diagnostics."""


def predictive_metrics(task: str, prediction: Prediction, y: np.ndarray) -> dict[str, float | None]:
    """Compare a prediction with the observed targets.

    Args:
        task: "regression", "binary" or "multiclass".
        prediction: the prediction at N held-out rows.
        y: their targets, [N].

    Returns:
        Values by metric; those of a regression are in the units of y. The AUC is None if all
        targets are of one class.
    """
    if task == "regression":
        return {
            "rmse": metrics.rmse(y, prediction.mean),
            "log_density": metrics.mean_log_density(prediction.log_prob(y)),
            "crps": float(prediction.crps(y).mean()),
            "coverage90": metrics.interval_coverage(y, *prediction.interval(0.9)),
        }
    probabilities = prediction.probabilities
    values: dict[str, float | None] = {
        name: function(y, probabilities) for name, function in _CLASSES.items()
    }
    if task == "binary":
        has_both = len(np.unique(y)) == 2
        values["auc"] = metrics.auc(y, probabilities[:, 1]) if has_both else None
    return values


def summarise(
    rows: Sequence[dict[str, Any]], methods: Sequence[str], task: str
) -> list[dict[str, Any]]:
    """Return each method's mean and standard error of every metric over its successful fits."""
    summary = []
    for method in methods:
        fitted = [r for r in rows if r["method"] == method and "error" not in r]
        if fitted:
            means = {m: _mean_and_error([r.get(m) for r in fitted]) for m in METRICS[task]}
            summary.append({"method": method, **means})
    return summary


def _mean_and_error(values: list[float | None]) -> dict[str, float | None]:
    known = [v for v in values if v is not None]
    if not known:
        return {"mean": None, "se": None}
    return dict(zip(("mean", "se"), metrics.mean_and_standard_error(known), strict=True))


def format_number(value: float) -> str:
    """Format a number with four digits."""
    return f"{value:.4g}"


def format_summary(metric: str, value: dict[str, float | None]) -> str:
    """Format a mean and its standard error for a table.

    The standard error gets two digits, and the mean as many decimals. A mean without a positive
    standard error gets four digits. A missing mean gives an empty string.
    """
    mean, error = value["mean"], value["se"]
    if mean is None or error is None:
        return ""
    if metric == "seconds":
        return f"{mean:.0f}"
    if not error > 0:  # NaN for a single split, 0 for equal values
        return format_number(mean)
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if decimals > 4:
        return f"{mean:.4g} ±{error:.1g}"
    return f"{mean:.{decimals}f} ±{error:.{decimals}f}"
