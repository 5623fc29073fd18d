"""One method on one split: the fit, its row of results, and its ArviZ tree."""

from __future__ import annotations

import dataclasses
import json
import os
import textwrap
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from jax import random

from dgp_ppl._files import fingerprint, finite
from dgp_ppl.comparison._fit_method import FailedFit, Found, MethodFit, fit_method, keys_of_split
from dgp_ppl.comparison._method import Fitted
from dgp_ppl.comparison._metrics import METRICS, predictive_metrics
from dgp_ppl.comparison._rivals import fit_rival
from dgp_ppl.comparison._setting import Setting
from dgp_ppl.comparison._source import Split
from dgp_ppl.criticism import FitCheck, chain_diagnostics, check_fit, prediction_diagnostics
from dgp_ppl.datasets import Dataset, Rows, repeated_rows
from dgp_ppl.datasets._source import RowSource
from dgp_ppl.inference.runs._summary import Summarized
from dgp_ppl.inferencedata import to_inferencedata
from dgp_ppl.linalg._precision import precision_of
from dgp_ppl.persistence import KeptFit
from dgp_ppl.prediction import Prediction
from dgp_ppl.prediction._pool import PooledPrediction
from dgp_ppl.standardize import Standardizer

# The tree has at least as many draws as the prediction has passes, and more for small data.
_MAX_DRAWS_PER_PASS = 10
_MAX_VALUES = 500_000  # draws times rows of the tree's large variables

_DIAGNOSED_ROWS = 50  # held-out rows at which the log densities of chains are compared
_DIAGNOSED_DRAWS = 500  # of each chain

_SHOWN_ROWS = 10_000  # training rows of a source that a run keeps
_WIDTH = 100  # of the lines of a repr


@dataclasses.dataclass(frozen=True, repr=False)
class Run(Summarized):
    """A method fitted to one split, with the data it was fitted to, in their units.

    Attributes:
        fitted: the fit.
        standardizer: the scale of the training rows.
        test: the prediction at the held-out rows.
        x: training inputs, [N, D]; of a source of rows 10,000 random ones.
        y: their targets, [N].
        x_test: held-out inputs, [N*, D].
        y_test: held-out targets, [N*].
        data: the data set.
        config: the configuration of the comparison.
        row: the row of results: the method, the split and the metrics.
    """

    fitted: Fitted
    standardizer: Standardizer
    test: Prediction
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    data: Dataset | RowSource
    config: Mapping[str, Any]
    row: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def num_data(self) -> int:
        """Number of training rows: all that are not held out."""
        return len(self.data) - len(self.y_test)

    def summary(self) -> list[str]:
        data, rows = self.data, f"{self.num_data:,} training and {len(self.y_test):,} held-out rows"
        found = {n: self.row.get(n) for n in METRICS[data.task]}
        values = ", ".join(f"{n} {v:.4g}" for n, v in found.items() if v is not None)
        return [
            f"{self.row.get('method', 'a fit')} on {data.name} ({data.task} of {data.y_name}), "
            f"{rows} of {self.x.shape[1]} inputs",
            *textwrap.wrap(values, _WIDTH),
            *repr(self.fitted).splitlines(),
        ]

    @cached_property
    def tree(self) -> Any:
        """The ArviZ tree, made at the first access."""
        fitted, config = self.fitted, self.config
        passes = config["samples"]
        draws = min(_MAX_DRAWS_PER_PASS * passes, max(passes, _MAX_VALUES // len(self.y)))
        with precision_of((fitted.result.params, fitted.chains and fitted.chains.samples)):
            return to_inferencedata(
                random.key(config["seed"]), fitted.model, fitted.guide, fitted.result.params,
                self.x, self.y, posterior_samples=fitted.chains or fitted.draws,
                standardizer=self.standardizer, num_samples=draws, num_prior_samples=0,
                test=(self.x_test, self.y_test), result=fitted.result,
                # LOO leaves out whole rows, so a row's likelihood integrates its latent inputs.
                latent_rows="integrated",
                coords={"input": np.array(self.data.x_names)},
                attrs={"config": json.dumps(config)}, **fitted.kwargs,
            )  # fmt: skip

    @cached_property
    def check(self) -> FitCheck:
        """`check_fit` of this fit, made at the first access."""
        fitted, y = self.fitted, self.y
        with precision_of((fitted.result.params, fitted.chains and fitted.chains.samples)):
            y = self.standardizer.outputs(y) if self.data.task == "regression" else y
            return check_fit(
                fitted.result, random.key(self.config["seed"]), fitted.model, fitted.guide,
                np.asarray(self.standardizer.inputs(self.x)), np.asarray(y),
                test=(self.test, self.y_test), posterior_samples=fitted.chains or fitted.draws,
                **fitted.kwargs,
            )  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keep the fit in a file; `dgp_ppl.load` gives the same predictions in a new process.

        The file also holds the preprocessor of a table, so the loaded fit takes tables like the
        data's. ``info["comparison"]`` has the target, the task, the classes, the numbers of rows,
        the configuration and the row of results. Of several restarts, it is the first fit.

        Args:
            path: the file. An earlier file is replaced in one step at the end.

        Raises:
            DataError: if the file cannot be written.
        """
        fitted, data = self.fitted, self.data
        table = data.preprocessor
        classes = () if table is None else table.classes
        if not classes and data.task != "regression":
            classes = map(str, range(data.num_classes))
        info = {
            "name": data.name, "source": data.source, "target": data.y_name, "task": data.task,
            "classes": list(classes),
            "rows": {"training": self.num_data, "held_out": len(self.y_test)},
            "config": dict(self.config), "row": dict(self.row),
        }  # fmt: skip
        KeptFit(
            fitted.model, fitted.guide, fitted.result.params, fitted.kwargs, self.standardizer,
            posterior_samples=fitted.chains or fitted.draws,
            losses=fitted.result.losses,
            columns=data.x_names,
            data=fingerprint(self.x, self.y),
            info={"comparison": finite(info)},
            preprocessing=None if table is None else table.to_state(),
        ).save(path)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One method to fit to one split, and to measure."""

    method: str
    split: Split
    setting: Setting
    config: Mapping[str, Any]
    label: str | bool = False  # of the progress bar
    keeps_run: bool = True  # whether the run is needed, and not the row alone
    keeps_tree: bool = False  # whether its ArviZ tree is needed, too
    rival: Any = None  # the estimator, unless `method` is one of ours

    @property
    def fit_options(self) -> dict[str, Any]:
        data = self.split.data
        by_column = data.preprocessor.one_hot if data.preprocessor is not None else {}
        return {
            "seed": self.config["seed"], "split": self.split.index,
            "shared_unit": data.shared_unit, "progress": self.label,
            "one_hot": list(by_column.values()) if self.setting.category_kernel else [],
        }  # fmt: skip


def run_method(job: Job, found: Found | None = None) -> tuple[dict[str, Any], Run | None]:
    """Do a job, whose fit may be `found` already; return the row, and the run if there is one.

    What failed has none, nor have estimators of other packages.
    """
    split, setting, data = job.split, job.setting, job.split.data
    x, y = split.training(setting.batch)
    x_test, y_test = split.held_out()
    repeated = None if isinstance(x, Rows) else repeated_rows(x, x_test)
    row: dict[str, Any] = {
        "split": split.index, "method": job.method, **dict.fromkeys(METRICS[data.task]),
        "steps": setting.steps,
    }  # fmt: skip
    if job.rival is not None:
        row["steps"], options = None, job.fit_options
        labels = None if split.labels is None else split.labels[split.train]
        try:
            fit = fit_rival(job.rival, x, y, x_test, setting, data.num_classes, labels, **options)
        except FailedFit as error:
            return {**row, "error": str(error)}, None
        row |= {"seconds": fit.seconds, "density": fit.density}
        return row | predictive_metrics(data.task, fit, y_test, repeated), None
    if found is None:
        try:
            found = fit_method(job.method, x, y, setting, **job.fit_options)
        except FailedFit as error:
            found = error
    if not isinstance(found, MethodFit):
        return {**row, "error": str(found)}, None
    fits, standardizer, num_samples = found.fits, found.standardizer, setting.samples
    fitted, prediction = fits[0], found.predict(x_test, num_samples)
    row["seconds"], row["steps"] = found.seconds, len(fitted.result.losses)
    row["elbo_per_datum"] = fitted.elbo_per_datum
    if found.errors:
        failed = f"{len(found.errors)} of {setting.restarts} fits failed"
        row["restart_note"] = f"{failed}: {found.errors[0]}"
    if isinstance(prediction, PooledPrediction):
        name = "log_density" if data.task == "regression" else "log_loss"
        values = [predictive_metrics(data.task, p, y_test)[name] for p in prediction.members]
        row["restart_spread"] = float(np.std([v for v in values if v is not None], ddof=1))
        if bounds := [f.elbo_per_datum for f in fits if f.elbo_per_datum is not None]:
            row["elbo_per_datum"] = float(np.mean(bounds))
    row |= predictive_metrics(data.task, prediction, y_test, repeated)
    _, key_rows, key_prediction = keys_of_split(job.config["seed"], split.index)
    if fitted.chains is not None:
        row |= chain_diagnostics(fitted.chains)
        if row["rhat"] is not None:  # several chains, with enough draws
            row["rhat_predictions"] = prediction_diagnostics(
                key_prediction, fitted.model, fitted.result,
                x_test[:_DIAGNOSED_ROWS], y_test[:_DIAGNOSED_ROWS],
                posterior_samples=fitted.chains, standardizer=standardizer,
                num_draws=_DIAGNOSED_DRAWS, **fitted.kwargs,
            )["rhat_log_density"]  # fmt: skip
    if isinstance(x, Rows):
        x, y = x.sample(key_rows, _SHOWN_ROWS)
    run = Run(fitted, standardizer, prediction, x, y, x_test, y_test, data, job.config, row)
    return row, run
