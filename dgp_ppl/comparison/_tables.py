"""How a comparison's numbers are headed and rounded, in the terminal and in a report."""

import math

__all__ = ["INFERENCE", "SCORES", "cell", "number"]

SCORES = {
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
"""Of predictions."""

INFERENCE = {
    "evidence_per_datum": "evidence",
    "evidence_error": "its error",
    "gap": "gap",
    "rhat": "R-hat",
    "ess": "ESS",
    "divergences": "div.",
}
"""Of inference."""


def number(value: float) -> str:
    """Four digits."""
    return f"{value:.4g}"


def cell(metric: str, value: dict[str, float | None]) -> str:
    """Mean ± standard error, to two digits of the latter; the mean to four where there is none."""
    mean, se = value["mean"], value["se"]
    if mean is None or se is None:  # the method has none
        return ""
    if metric == "seconds":
        return f"{mean:.0f}"
    if not se > 0:  # one split (NaN), or the same value in all
        return f"{mean:.4g}"
    digits = max(0, 1 - math.floor(math.log10(se)))
    return f"{mean:.{digits}f} ±{se:.{digits}f}" if digits <= 4 else f"{mean:.4g} ±{se:.1g}"
