"""One method on one split: the fit, its row of results, and its ArviZ tree."""

from __future__ import annotations

import dataclasses
import json
import os
import textwrap
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike

from dgp_ppl._errors import NonFiniteLossError, UnsuitableError
from dgp_ppl._storage import fingerprint, finite
from dgp_ppl._typing import PRNGKey
from dgp_ppl.comparison._method import METHODS, Fitted, Setting, Task
from dgp_ppl.comparison._metrics import METRICS, predictive_metrics
from dgp_ppl.comparison._split import Split
from dgp_ppl.criticism import chain_diagnostics
from dgp_ppl.datasets import Dataset, Rows, RowSource
from dgp_ppl.inference import Summarized, annealed_evidence, why_no_evidence
from dgp_ppl.inferencedata import to_inferencedata
from dgp_ppl.persistence import KeptFit
from dgp_ppl.prediction import Prediction, pool
from dgp_ppl.standardize import Standardizer

__all__ = ["MethodFit", "Run", "fit_method", "run_method"]

_ANNEALING: dict[str, Any] = {"temperatures": 500, "num_particles": 8, "num_noise": 4}

# The tree has at least as many draws as the prediction has passes, and more for small data.
_MAX_DRAWS_PER_PASS = 10
_MAX_VALUES = 500_000  # draws times rows of the tree's large variables
_LATENT_ROW_PASSES = 50

_ROWS_IN_MEMORY = 20_000  # so few rows of a source are read whole
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
        num_data: number of training rows.
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
    num_data: int
    config: Mapping[str, Any]
    row: Mapping[str, Any] = dataclasses.field(default_factory=dict)

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keep the fit in a file; `dgp_ppl.load` gives the same predictions in a new process.

        The file also holds the preprocessor of a table, so the loaded fit takes tables like the
        data's. ``info["comparison"]`` has the target, the task, the classes, the numbers of rows,
        the configuration and the row of results. Of several restarts, it is the first fit.

        Args:
            path: the file. An earlier file is replaced at the end, at once.

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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MethodFit(Summarized):
    """A method fitted to training rows: all that predictions in the units of the data need.

    Attributes:
        fits: the fits that succeeded, one for each restart.
        standardizer: the scale of the training rows.
        seed: seed of the fits and of the predictions.
        split: number of the split.
        errors: messages of the restarts that failed.
        seconds: time of all fits.
    """

    fits: tuple[Fitted, ...]
    standardizer: Standardizer
    seed: int
    split: int = 0
    errors: tuple[str, ...] = ()
    seconds: float = 0.0

    def summary(self) -> list[str]:
        many = "" if len(self.fits) == 1 else "s, of which the first is below"
        failed = f", {len(self.errors)} failed: {self.errors[0]}" if self.errors else ""
        first = f"{len(self.fits)} fit{many}, with seed {self.seed} in {self.seconds:.3g} s{failed}"
        return [first, *repr(self.fits[0]).splitlines()]

    def predictions(self, x: ArrayLike, num_samples: int = 100) -> list[Prediction]:
        """Return the predictive distribution of each fit at inputs x, [N*, D], in their units."""
        key = _keys(self.seed, self.split)[2]
        return [
            fitted.predict(
                random.fold_in(key, i) if i else key, x, num_samples=num_samples,
                standardizer=self.standardizer,
            )
            for i, fitted in enumerate(self.fits)
        ]  # fmt: skip

    def predict(self, x: ArrayLike, num_samples: int = 100) -> Prediction:
        """Return the predictive distribution at inputs x, [N*, D]; several fits are mixed.

        Args:
            x: inputs in the units of the data.
            num_samples: number of passes of each fit.
        """
        return _mixed(self.predictions(x, num_samples))


def fit_method(
    method: str,
    x: ArrayLike | Rows,
    y: ArrayLike | None,
    setting: Setting,
    *,
    seed: int = 0,
    split: int = 0,
    restarts: int = 1,
    shared_unit: bool = False,
    one_hot: Sequence[Sequence[int]] = (),
    progress: str | bool = False,
) -> MethodFit:
    """Fit one method of `compare` to training rows, with the keys that `compare` takes.

    >>> import numpy as np
    >>> from dgp_ppl.comparison import Setting, fit_method
    >>> x = np.linspace(0.0, 9.0, 20)[:, None]
    >>> found = fit_method("sgpr", x, 3 * x[:, 0], Setting(inducing=5, steps=20))
    >>> found.predict(x[:3]).mean.shape
    (3,)

    Args:
        method: name of the method, a key of `METHODS`.
        x: training inputs in their units, [N, D]; or a source of rows, with the targets.
        y: training targets in their units, or classes 0 ... C-1, [N]; None with a source.
        setting: the settings, with the task, the likelihood and the number of outputs; see
            `complete_setting`.
        seed: seed of the fit, at least 0.
        split: number of the split in `compare`.
        restarts: number of fits, with different keys.
        shared_unit: whether all inputs have the same unit; see `Dataset`.
        one_hot: positions of the one-hot inputs of each column of categories that gets a kernel
            over categories, such as ``Preprocessor.one_hot.values()``.
        progress: label of the progress bar, or False.

    Raises:
        NonFiniteLossError: if the loss of the only fit became NaN or infinite.
        UnsuitableError: if the method does not support these data, or no restart succeeded.
    """
    if isinstance(x, Rows) and len(x) <= max(setting.batch, _ROWS_IN_MEMORY):
        x, y = x.take(range(len(x)))
    is_streamed, is_regression = isinstance(x, Rows), setting.task == "regression"
    standardizer = Standardizer.fit(
        x, y if is_regression and not is_streamed else None, shared=shared_unit,
        unscaled=[i for columns in one_hot for i in columns], targets=is_regression,
    )  # fmt: skip
    key_fit = _keys(seed, split)[0]
    task = _task(key_fit, x, y, setting, standardizer, progress)
    task = dataclasses.replace(task, one_hot=tuple(map(tuple, one_hot)))
    start = time.perf_counter()
    fits: list[Fitted] = []
    errors: list[NonFiniteLossError | UnsuitableError] = []
    for restart in range(restarts):
        key_restart = key_fit if restart == 0 else random.fold_in(key_fit, restart)
        try:
            fits.append(METHODS[method](dataclasses.replace(task, key=key_restart)))
        except (NonFiniteLossError, UnsuitableError) as error:
            errors.append(error)
    if not fits:
        raise errors[0]
    seconds = time.perf_counter() - start
    return MethodFit(tuple(fits), standardizer, seed, split, tuple(map(str, errors)), seconds)


def _task(
    key: PRNGKey, x: Any, y: Any, setting: Setting, scale: Standardizer, progress: str | bool
) -> Task:
    """Return the fit to do, in standardised units."""
    if isinstance(x, Rows):
        return Task(key, scale.rows(x), None, setting, progress)
    target = scale.outputs(y) if setting.task == "regression" else jnp.asarray(y)
    return Task(key, scale.inputs(x), target, setting, progress)


def _keys(seed: int, split: int) -> Any:
    """Return the keys of a split: of the fit, of the rows that a run keeps, of the prediction."""
    return random.split(random.fold_in(random.key(seed), split), 3)


def _mixed(predictions: list[Prediction]) -> Prediction:
    return pool(predictions) if len(predictions) > 1 else predictions[0]


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
    x, y = split.training()
    x_test, y_test = split.held_out()
    row: dict[str, Any] = {
        "split": split.index, "method": method, **dict.fromkeys(METRICS[data.task]),
        "steps": setting.steps,
    }  # fmt: skip
    restarts = config["restarts"]
    try:
        found = fit_method(
            method, x, y, setting, seed=config["seed"], split=split.index, restarts=restarts,
            shared_unit=data.shared_unit, one_hot=_one_hot(data, config), progress=progress,
        )  # fmt: skip
    except (NonFiniteLossError, UnsuitableError) as error:
        return {**row, "error": str(error)}, None
    row["seconds"] = found.seconds
    if found.errors:
        row["restart_note"] = f"{len(found.errors)} of {restarts} fits failed: {found.errors[0]}"

    fits, standardizer = found.fits, found.standardizer
    predictions = found.predictions(x_test, config["samples"])
    fitted, prediction = fits[0], _mixed(predictions)
    row["elbo_per_datum"], row["steps"] = fitted.elbo_per_datum, len(fitted.result.losses)
    if len(fits) > 1:
        name = "log_density" if data.task == "regression" else "log_loss"
        values = [predictive_metrics(data.task, p, y_test)[name] for p in predictions]
        row["restart_spread"] = float(np.std([v for v in values if v is not None], ddof=1))
        if bounds := [f.elbo_per_datum for f in fits if f.elbo_per_datum is not None]:
            row["elbo_per_datum"] = float(np.mean(bounds))
    row |= predictive_metrics(data.task, prediction, y_test)
    if fitted.chains is not None:
        row |= chain_diagnostics(fitted.chains)
    if config["evidence"]:
        key = random.fold_in(random.key(config["seed"]), split.index)
        task = _task(_keys(config["seed"], split.index)[0], x, y, setting, standardizer, progress)
        row |= _measure_evidence(random.fold_in(key, 1), fitted, task)
    num_data = len(x)
    if isinstance(x, Rows):
        x, y = x.sample(_keys(config["seed"], split.index)[1], _SHOWN_ROWS)
    run = Run(fitted, standardizer, prediction, x, y, x_test, y_test, data, num_data, config, row)
    return row, run


def _one_hot(data: Dataset | RowSource, config: Mapping[str, Any]) -> list[range]:
    """Return the one-hot inputs of a data set that get a kernel over categories."""
    if not config.get("category_kernel") or data.preprocessor is None:
        return []
    return list(data.preprocessor.one_hot.values())


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
