"""The metrics of a comparison: which a task has, their values, summaries, headings and formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn.metrics

from dgp_ppl import metrics
from dgp_ppl.comparison._rivals import OF_ERRORS, RivalFit
from dgp_ppl.prediction import Prediction

_REGRESSION = ("rmse", "log_density", "crps", "coverage90")
_CLASSES = ("accuracy", "log_loss", "ece", "brier")
_UNSEEN = ("rmse_of_unseen", "log_density_of_unseen"), ("accuracy_of_unseen", "log_loss_of_unseen")
_FIT = (
    "elbo_per_datum", "restart_spread", "rhat_predictions", "rhat", "ess", "divergences", "seconds",
    "steps",
)  # fmt: skip

METRICS: dict[str, tuple[str, ...]] = {
    "regression": (*_REGRESSION, "repeated", *_UNSEEN[0], *_FIT),
    "binary": (*_CLASSES, "auc", "repeated", *_UNSEEN[1], *_FIT),
    "multiclass": (*_CLASSES, "repeated", *_UNSEEN[1], *_FIT),
}
"""The metrics of each task: first of predictions, then of fits."""

PREDICTION_HEADINGS = {
    "accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE", "brier": "Brier", "auc": "AUC",
    "rmse": "RMSE", "log_density": "log dens.", "crps": "CRPS", "coverage90": "90 % cov.",
    "elbo_per_datum": "ELBO/datum", "seconds": "s",
}  # fmt: skip
"""Table headings of the metrics of predictions, with the ELBO and the time."""

INFERENCE_HEADINGS = {
    "restart_spread": "spread", "rhat_predictions": "R-hat pred.", "rhat": "R-hat v", "ess": "ESS",
    "divergences": "div.",
}  # fmt: skip
"""Table headings of the metrics of inference: restarts and chain diagnostics."""

UNSEEN_HEADINGS = {"repeated": "repeated rows"} | {
    m: PREDICTION_HEADINGS[m.removesuffix("_of_unseen")] for names in _UNSEEN for m in names
}
"""Table headings of held-out rows that repeat the inputs of a training row: their number, and the
metrics of the others."""


def predictive_metrics(
    task: str, prediction: Prediction | RivalFit, y: np.ndarray, repeated: np.ndarray | None = None
) -> dict[str, float | None]:
    """Return the metrics of a prediction of y, [N]; the AUC is None if all are of one class.

    `repeated`, [N], tells the rows that the metrics of the unseen ones leave out.
    """
    rows: dict[str, float | None] = {} if repeated is None else {"repeated": int(repeated.sum())}
    unseen = None if repeated is None or repeated.all() else ~repeated
    if task == "regression":
        mean, log_p = prediction.mean, prediction.log_prob(y)
        if unseen is not None:
            rows["rmse_of_unseen"] = metrics.rmse(y[unseen], mean[unseen])
            rows["log_density_of_unseen"] = metrics.mean_log_density(log_p[unseen])
        return {
            "rmse": metrics.rmse(y, mean),
            "log_density": metrics.mean_log_density(log_p),
            "crps": float(prediction.crps(y).mean()),
            "coverage90": metrics.interval_coverage(y, *prediction.interval(0.9)),
            **rows,
        }
    probabilities = prediction.probabilities
    classes = np.arange(probabilities.shape[1])
    correct = probabilities.argmax(axis=1) == y
    with np.errstate(divide="ignore"):  # scikit-learn's log loss would clip probabilities
        log_loss = -np.log(probabilities[np.arange(len(y)), y.astype(int)])
    if unseen is not None:
        rows["accuracy_of_unseen"] = float(correct[unseen].mean())
        rows["log_loss_of_unseen"] = float(log_loss[unseen].mean())
    values: dict[str, float | None] = {
        "accuracy": float(correct.mean()),
        "log_loss": float(log_loss.mean()),
        "ece": _calibration_error(probabilities.max(axis=1), correct),
        "brier": float(np.square(probabilities - (classes == y[:, None])).sum(axis=1).mean()),
        **rows,
    }
    if task == "binary":
        has_both = len(np.unique(y)) == 2
        auc = sklearn.metrics.roc_auc_score
        values["auc"] = float(auc(y, probabilities[:, 1])) if has_both else None
    return values


def _calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """Return the expected calibration error (Guo, Pleiss, Sun and Weinberger 2017)."""
    inner = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    gaps = np.bincount(np.searchsorted(inner, confidence), weights=correct - confidence)
    return float(np.sum(np.abs(gaps)) / len(confidence))


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


def _mean_and_error(values: list[Any]) -> dict[str, Any]:
    known = [v for v in values if v is not None]
    if words := [v for v in known if isinstance(v, str)]:  # "stuck", an effective sample size
        return {"mean": words[0], "se": None}
    if not known:
        return {"mean": None, "se": None}
    error = math.nan
    if len(known) > 1:
        with np.errstate(invalid="ignore"):  # an infinite R-hat
            error = float(np.std(known, ddof=1) / np.sqrt(len(known)))
    return {"mean": float(np.mean(known)), "se": error}


def density_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say which methods have a density that is not their own."""
    names = dict.fromkeys(r["method"] for r in rows if r.get("density") == OF_ERRORS)
    return [f"The density of {', '.join(names)} is {OF_ERRORS}."] if names else []


def format_number(value: float) -> str:
    """Format a number with four digits."""
    return f"{value:.4g}"


def format_summary(metric: str, value: dict[str, Any]) -> str:
    """Format a mean with the decimals of its error's two digits; a missing mean is empty."""
    mean, error = value["mean"], value["se"]
    if isinstance(mean, str):
        return mean
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
