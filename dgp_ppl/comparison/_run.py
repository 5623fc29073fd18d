"""One method on one split: the fit, its row of results, and its ArviZ tree."""

import dataclasses
import json
import time
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random

from dgp_ppl._errors import NonFiniteLossError, UnsuitableError
from dgp_ppl._typing import PRNGKey
from dgp_ppl.comparison._method import METHODS, Fitted, Setting, Task
from dgp_ppl.comparison._metrics import METRICS, predictive_metrics
from dgp_ppl.criticism import chain_diagnostics
from dgp_ppl.datasets import Dataset
from dgp_ppl.inference import annealed_evidence, why_no_evidence
from dgp_ppl.inferencedata import to_inferencedata
from dgp_ppl.prediction import Prediction, pool
from dgp_ppl.standardize import Standardizer

__all__ = ["Run", "Split", "run_method"]

_ANNEALING: dict[str, Any] = {"temperatures": 500, "num_particles": 8, "num_noise": 4}

# The tree has at least as many draws as the prediction has passes, and more for small data.
_MAX_DRAWS_PER_PASS = 10
_MAX_VALUES = 500_000  # draws times rows of the tree's large variables
_LATENT_ROW_PASSES = 50


@dataclasses.dataclass(frozen=True)
class Run:
    """A method fitted to one split, with the data it was fitted to, in their units.

    Attributes:
        fitted: the fit.
        standardizer: the scale of the training rows.
        test: the prediction at the held-out rows.
        x: training inputs, [N, D].
        y: training targets, [N].
        x_test: held-out inputs, [N*, D].
        y_test: held-out targets, [N*].
        data: the data set.
        config: the configuration of the comparison.
    """

    fitted: Fitted
    standardizer: Standardizer
    test: Prediction
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    data: Dataset
    config: Mapping[str, Any]

    @cached_property
    def tree(self) -> Any:
        """The ArviZ tree, made at the first access."""
        fitted, config = self.fitted, self.config
        passes = config["samples"]
        draws = min(_MAX_DRAWS_PER_PASS * passes, max(passes, _MAX_VALUES // len(self.y)))
        return to_inferencedata(
            random.key(config["seed"]), fitted.model, fitted.guide, fitted.result.params,
            self.x, self.y, posterior_samples=fitted.chains or fitted.draws,
            standardizer=self.standardizer, num_samples=draws, num_prior_samples=0,
            test=(self.x_test, self.y_test), result=fitted.result,
            # LOO leaves out whole rows, so a row's likelihood integrates its latent inputs.
            latent_rows="integrated",
            passes=_LATENT_ROW_PASSES if config["model"] == "latent" else None,
            coords={"input": np.array(self.data.x_names)},
            attrs={"config": json.dumps(config)}, **fitted.kwargs,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """One split of a data set.

    Attributes:
        data: the data set.
        index: number of the split, from 0.
        train: row numbers of the training rows.
        test: row numbers of the held-out rows.
    """

    data: Dataset
    index: int
    train: np.ndarray
    test: np.ndarray


def run_method(
    method: str, split: Split, setting: Setting, config: Mapping[str, Any], progress: str | bool
) -> tuple[dict[str, Any], Run | None]:
    """Fit a method to a split and measure it.

    Args:
        method: name of the method.
        split: the split.
        setting: the settings of the comparison.
        config: its configuration, with ``seed``, ``restarts``, ``samples`` and ``evidence``.
        progress: label of the progress bar, or False.

    Returns:
        The row of results, and the run; None if the fit failed.
    """
    data = split.data
    x, y = data.x[split.train], data.y[split.train]
    x_test, y_test = data.x[split.test], data.y[split.test]
    scaled_target = y if data.task == "regression" else None
    standardizer = Standardizer.fit(x, scaled_target, shared=data.shared_unit)
    key = random.fold_in(random.key(config["seed"]), split.index)
    key_fit, _, key_test = random.split(key, 3)
    task = Task(
        key_fit,
        standardizer.inputs(x),
        jnp.asarray(y) if scaled_target is None else standardizer.outputs(y),
        setting,
        progress,
    )
    row: dict[str, Any] = {
        "split": split.index, "method": method, **dict.fromkeys(METRICS[data.task]),
        "steps": setting.steps,
    }  # fmt: skip
    start = time.perf_counter()
    fits: list[Fitted] = []
    errors: list[str] = []
    for restart in range(config["restarts"]):
        key_restart = key_fit if restart == 0 else random.fold_in(key_fit, restart)
        try:
            fits.append(METHODS[method](dataclasses.replace(task, key=key_restart)))
        except (NonFiniteLossError, UnsuitableError) as error:
            errors.append(str(error))
    if not fits:
        return {**row, "error": errors[0]}, None
    row["seconds"] = time.perf_counter() - start
    if errors:
        row["restart_note"] = f"{len(errors)} of {config['restarts']} fits failed: {errors[0]}"

    predictions = [
        fitted.predict(
            random.fold_in(key_test, i) if i else key_test, x_test,
            num_samples=config["samples"], standardizer=standardizer,
        )
        for i, fitted in enumerate(fits)
    ]  # fmt: skip
    fitted, prediction = fits[0], predictions[0]
    row["elbo_per_datum"], row["steps"] = fitted.elbo_per_datum, len(fitted.result.losses)
    if len(fits) > 1:
        prediction = pool(predictions)
        name = "log_density" if data.task == "regression" else "log_loss"
        values = [predictive_metrics(data.task, p, y_test)[name] for p in predictions]
        row["restart_spread"] = float(np.std([v for v in values if v is not None], ddof=1))
        if bounds := [f.elbo_per_datum for f in fits if f.elbo_per_datum is not None]:
            row["elbo_per_datum"] = float(np.mean(bounds))
    row |= predictive_metrics(data.task, prediction, y_test)
    if fitted.chains is not None:
        row |= chain_diagnostics(fitted.chains)
    if config["evidence"]:
        row |= _measure_evidence(random.fold_in(key, 1), fitted, task)
    return row, Run(fitted, standardizer, prediction, x, y, x_test, y_test, data, config)


def _measure_evidence(key: PRNGKey, fitted: Fitted, task: Task) -> dict[str, Any]:
    """Measure the log evidence and its gap above the ELBO, in nats per datum.

    Returns:
        The entries of the row. ``evidence_note`` explains a missing or doubtful evidence.
    """
    guide: Any = fitted.guide
    if fitted.elbo_per_datum is None:
        note = "this method reports no ELBO, so there is no gap to measure"
        return {"evidence_note": note}
    if (reason := why_no_evidence(guide)) is not None:
        return {"evidence_note": reason}
    if getattr(guide, "row_params", ()):
        return {"evidence_note": "the model has latent inputs, which annealing does not sample"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed_evidence: ")  # the note repeats them
        evidence = annealed_evidence(
            key, fitted.model, guide, fitted.result.params, task.x, task.y,
            progress=task.progress, **_ANNEALING, **fitted.kwargs,
        )  # fmt: skip
    rows = len(task.y)
    measured: dict[str, Any] = {
        "evidence_per_datum": evidence.log_evidence / rows,
        "evidence_error": evidence.standard_error / rows,
        "gap": evidence.log_evidence / rows - fitted.elbo_per_datum,
    }
    if evidence.warnings:
        measured["evidence_note"] = "; ".join(evidence.warnings)
    return measured
