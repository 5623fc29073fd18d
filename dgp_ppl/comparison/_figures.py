"""The figures of a comparison's first split."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import random

from dgp_ppl import plots
from dgp_ppl.comparison._run import Run
from dgp_ppl.inference import FitResult

__all__ = ["FIGURES", "draw_figures"]

FIGURES = ("training", "predictions", "coverage", "reliability", "function")
"""The names of all figures; a comparison has those that suit its data."""

_LEVEL = 0.9  # probability of the plotted intervals
_COVERAGE_LEVELS = np.linspace(0.1, 0.9, 9)
_GRID_POINTS = 300
_FUNCTION_DRAWS = 8


def draw_figures(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Draw the figures of the first split's runs.

    Args:
        runs: the runs by method; at least one.

    Returns:
        Matplotlib figures by name, a subset of `FIGURES`.
    """
    data = next(iter(runs.values())).data
    runs = {plots.method_label(m): r for m, r in runs.items()}
    figures = _training(data.name, data.task, runs)
    if data.task != "regression":
        return figures | _reliability(runs, f"{data.name}: held-out rows, split 0")
    target = data.y_name.replace("_", " ")
    figures |= _predictions(runs, target, f"{data.name}: held-out rows, split 0")
    if data.x.shape[1] == 1:
        figures["function"] = _function(runs, target)
    return figures


def _training(name: str, task: str, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Draw the training curves of the methods that have an ELBO."""
    curves = {
        method: run.fitted.result.elbo_per_datum
        for method, run in runs.items()
        if run.fitted.elbo_per_datum is not None and isinstance(run.fitted.result, FitResult)
    }
    if not curves:
        return {}
    units = "nats, standardised target" if task == "regression" else "nats"
    return {"training": plots.training_curves(curves, f"{name}: training, split 0", units)}


def _reliability(runs: Mapping[str, Run], title: str) -> dict[str, Any]:
    y_test = next(iter(runs.values())).y_test
    probabilities = {m: r.test.probabilities for m, r in runs.items()}
    return {"reliability": plots.reliability(y_test, probabilities, title)}


def _predictions(runs: Mapping[str, Run], target: str, title: str) -> dict[str, Any]:
    """Draw the predicted against the observed targets, and the coverage of intervals."""
    y_test = next(iter(runs.values())).y_test
    bands = {m: (r.test.mean, *r.test.interval(_LEVEL)) for m, r in runs.items()}
    tails = np.stack([0.5 - _COVERAGE_LEVELS / 2, 0.5 + _COVERAGE_LEVELS / 2])
    intervals = {m: r.test.quantile(tails) for m, r in runs.items()}
    return {
        "predictions": plots.predicted_against_observed(y_test, bands, target, title, _LEVEL),
        "coverage": plots.coverage_curves(y_test, _COVERAGE_LEVELS, intervals, title),
    }


def _function(runs: Mapping[str, Run], target: str) -> Any:
    """Draw the predicted functions of a data set with one input."""
    data = next(iter(runs.values())).data
    low, high = data.x.min(), data.x.max()
    margin = 0.1 * (high - low)
    grid = np.linspace(low - margin, high + margin, _GRID_POINTS)
    bands = {m: _function_band(r, grid) for m, r in runs.items()}
    labels = (data.x_names[0], target)
    return plots.function_bands(data.x[:, 0], data.y, grid, bands, labels, data.name)


def _function_band(run: Run, grid: np.ndarray) -> dict[str, np.ndarray]:
    key_band, key_draw = random.split(random.key(run.config["seed"]))
    prediction = run.fitted.predict(
        key_band, grid[:, None], num_samples=run.test.num_samples, standardizer=run.standardizer
    )
    lower, upper = prediction.interval(_LEVEL)
    draws = prediction.function_draws(key_draw, _FUNCTION_DRAWS)
    return {"mean": prediction.mean, "lower": lower, "upper": upper, "draws": draws}
