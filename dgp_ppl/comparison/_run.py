"""A method on the first split of a comparison: its ArviZ tree, and the pictures of several."""

import dataclasses
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from jax import random

from dgp_ppl import plots
from dgp_ppl.comparison._methods import Fitted
from dgp_ppl.datasets import Dataset
from dgp_ppl.inference import FitResult
from dgp_ppl.inferencedata import to_inferencedata
from dgp_ppl.prediction import Prediction
from dgp_ppl.standardize import Standardizer

__all__ = ["FIGURES", "Run", "figures"]

FIGURES = ("training", "predictions", "coverage", "reliability", "function")
_DRAWS_IN_PLOTS = 8
_LEVELS = np.linspace(0.1, 0.9, 9)
_MOST_DRAWS = 10  # of an ArviZ tree, for each pass of a prediction
_PASSES = {"latent": 50}
_NUMBERS = 2_000_000  # draws times rows, of each of its large variables


@dataclasses.dataclass(frozen=True)
class Run:
    """One method on one split, with what it saw, in the data's units.

    Attributes:
        fitted: the fit.
        standardizer: of the training rows.
        test: the prediction of the held-out rows.
        x: training inputs, [N, D].
        y: training targets, [N].
        x_test: held-out inputs, [N*, D].
        y_test: held-out targets, [N*].
        data: the data set.
        config: of the comparison.
    """

    fitted: Fitted
    standardizer: Standardizer
    test: Prediction
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    data: Dataset
    config: dict[str, Any]

    @cached_property
    def tree(self) -> Any:
        """The ArviZ tree, made when it is first asked for: more draws where there are few rows."""
        fitted = self.fitted
        passes = self.config["samples"]
        draws = min(_MOST_DRAWS * passes, max(passes, _NUMBERS // len(self.y)))
        return to_inferencedata(
            random.key(self.config["seed"]), fitted.model, fitted.guide, fitted.result.params,
            self.x, self.y, posterior_samples=fitted.chains or fitted.draws,
            standardizer=self.standardizer, num_samples=draws, num_prior_samples=0,
            test=(self.x_test, self.y_test), result=fitted.result,
            # Rows are left out whole; what a row's latent inputs are is averaged by more passes.
            latent_rows="integrated", passes=_PASSES.get(self.config["model"], 10),
            coords={"input": np.array(self.data.x_names)},
            attrs={"config": json.dumps(self.config)}, **fitted.kwargs,
        )  # fmt: skip


def figures(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The plots of a comparison's first split, by their names."""
    level = 0.9
    first = next(iter(runs.values()))
    data = first.data
    runs = {plots.method_words(m): r for m, r in runs.items()}
    target = data.y_name.replace("_", " ")
    curves = {
        m: r.fitted.result.elbo_per_datum
        for m, r in runs.items()
        if r.fitted.elbo_per_datum is not None and isinstance(r.fitted.result, FitResult)
    }
    y_test = first.y_test
    title = f"{data.name}: held-out rows, split 0"
    made = {}
    if curves:  # samplers have no bound
        units = "nats, standardised target" if data.task == "regression" else "nats"
        made["training"] = plots.training_curves(curves, f"{data.name}: training, split 0", units)
    if data.task != "regression":
        classes = {m: r.test.probabilities for m, r in runs.items()}
        return made | {"reliability": plots.reliability(y_test, classes, title)}
    bands = {m: (r.test.mean, *r.test.interval(level)) for m, r in runs.items()}
    made["predictions"] = plots.predicted_against_observed(y_test, bands, target, title, level)
    ends = {
        m: r.test.quantile(np.stack([0.5 - _LEVELS / 2, 0.5 + _LEVELS / 2]))
        for m, r in runs.items()
    }
    made["coverage"] = plots.coverage_curves(y_test, _LEVELS, ends, title)
    if data.x.shape[1] == 1:
        low, high = data.x.min(), data.x.max()
        margin = 0.1 * (high - low)
        grid = np.linspace(low - margin, high + margin, 300)
        functions = {m: _function(r, grid, level) for m, r in runs.items()}
        made["function"] = plots.function_bands(
            data.x[:, 0], data.y, grid, functions, (data.x_names[0], target), data.name
        )
    return made


def _function(run: Run, grid: np.ndarray, level: float) -> dict[str, np.ndarray]:
    key_band, key_draw = random.split(random.key(run.config["seed"]))
    options: Any = {"num_samples": run.test.num_samples, "standardizer": run.standardizer}
    forecast = run.fitted.predict(key_band, grid[:, None], **options)
    lower, upper = forecast.interval(level)
    draws = forecast.function_draws(key_draw, _DRAWS_IN_PLOTS)
    return {"mean": forecast.mean, "lower": lower, "upper": upper, "draws": draws}
