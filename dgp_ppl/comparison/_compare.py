"""The main job: fit the named methods to the splits of a data set, and write down how they did."""

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dgp_ppl import datasets, metrics
from dgp_ppl._checks import check_count
from dgp_ppl._errors import NonFiniteLossError, UnsuitableError
from dgp_ppl.comparison import _baselines  # noqa: F401 - registers its methods
from dgp_ppl.comparison._methods import METHODS, Fitted, methods_for_task
from dgp_ppl.comparison._report import write_report
from dgp_ppl.comparison._results import prepare, versions, write_json
from dgp_ppl.comparison._run import FIGURES, Run, figures
from dgp_ppl.comparison._scores import SCORES, score
from dgp_ppl.comparison._settings import LIKELIHOODS, MODELS, Setting
from dgp_ppl.criticism import chain_diagnostics
from dgp_ppl.datasets import Dataset
from dgp_ppl.inference import annealed_evidence, why_no_evidence
from dgp_ppl.standardize import Standardizer

__all__ = ["Comparison", "compare"]

_OF_FITS = (
    "elbo_per_datum", "evidence_per_datum", "evidence_error", "gap", "rhat", "ess", "divergences",
    "seconds", "steps",
)  # fmt: skip
METRICS = {task: (*scores, *_OF_FITS) for task, scores in SCORES.items()}
_DEFAULT_METHODS = ("sgpr", "svgp", "dsvi")
_SPLITS = 3
_ANNEALING: dict[str, Any] = {"temperatures": 500, "num_particles": 8, "num_noise": 4}


@dataclasses.dataclass
class Comparison:
    """The outcome of `compare`; `record` is what results.json holds.

    Attributes:
        record: ``data``, ``config``, ``versions``, ``splits`` and ``summary``.
        fits: by method, the first split's `Run`: what plots and reports are made of; its ``tree``
            is the ArviZ one.
    """

    record: dict[str, Any]
    fits: dict[str, Run] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def splits(self) -> list[dict[str, Any]]:
        """One row for every split and method."""
        return self.record["splits"]

    @property
    def summary(self) -> list[dict[str, Any]]:
        """One row for every method: the mean and standard error of each metric over splits."""
        return self.record["summary"]


def compare(
    data: str | os.PathLike[str] | Dataset,
    methods: Sequence[str] | None = None,
    *,
    model: str = "deep_gp",
    likelihood: str | None = None,
    depth: int = 2,
    inducing: int = 100,
    width: int | None = None,
    steps: int = 6000,
    batch: int = 1000,
    learning_rate: float = 0.1,
    splits: int | None = None,
    seed: int = 0,
    samples: int = 100,
    draws: int = 250,
    chains: int = 2,
    evidence: bool = False,
    target: str | None = None,
    split_key: str = datasets.DEFAULT_SPLITS,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    report: bool = False,
    progress: bool = True,
    on_row: Callable[[dict[str, Any]], None] | None = None,
) -> Comparison:
    """Fit each method on each split of a data set and score it on the rest.

    Inputs, and the target of a regression, are standardised with each split's training rows; RMSE,
    log density and CRPS are in the data's units, the ELBO is that of the standardised target.
    Classes are scored by the accuracy of the most probable one, log loss (nats), expected
    calibration error, Brier's score, and two classes by the AUC.

    Args:
        data: a `Dataset`, or what `datasets.load` takes: a name or a file.
        methods: names of the registry, `dgp_ppl.comparison.METHODS`; by default sgpr, svgp and
            dsvi, and for classes the last two.
        model: what is fitted: a name of `dgp_ppl.comparison.MODELS`; sgpr and svgp are models of
            their own.
        likelihood: of the target given f: "gaussian" for a regression, "probit" (the default) or
            "logit" for two classes, "softmax" (the default) or "robust_max" for several.
        depth: GP layers of the deep methods.
        inducing: inducing inputs of every layer.
        width: outputs of hidden layers; by default min(30, number of inputs).
        steps: optimiser steps.
        batch: rows of a minibatch; methods without minibatches (sgpr) take all.
        learning_rate: where Adam's cosine schedule starts.
        splits: how many splits: the data set's own first ones, or random 90/10; by default three,
            or as many as the data set has if those are fewer.
        seed: of random splits and of all fits.
        samples: passes of a prediction.
        draws: draws of each chain that samplers (sghmc, nuts) keep; NUTS has as many of warm-up.
        chains: their chains; with two or more there is an R-hat.
        evidence: measure the log evidence at each fit's hyperparameters by `annealed_evidence`,
            and so how far below it the bound is (``gap``, nats per datum), for the guides that it
            takes, without latent inputs; costs some minutes a fit. ``evidence_error`` is its
            standard error. A row's ``evidence_note`` says why there is no evidence, or why its
            error is not to be trusted.
        target: the column to predict, for files with columns.
        split_key: the array of splits in an .npz file.
        out: folder for results.json, METHOD.nc and the plots; None writes nothing. It is rewritten
            after every fit, so an interrupted run keeps what it had.
        overwrite: let `out` replace what an earlier comparison wrote there.
        report: write report.html to `out` too: one page with the tables, the pictures, criticism
            of the first split's fits, the configuration and the versions.
        progress: show a progress bar for each fit.
        on_row: called with each row of ``splits`` as it is done.

    Returns:
        The results; a method that did not fit has nulls and an ``error`` in its row.

    Raises:
        DataError: if the data or `out` cannot be used; nothing has been written then.
        TypeError: for a number that is no integer where one is wanted.
        ValueError: for an unknown method or a number out of range.
    """
    setting = Setting(model, depth, inducing, width, steps, batch, learning_rate, draws, chains)
    wanted = _DEFAULT_METHODS if methods is None else tuple(methods)
    _check(wanted, setting, 1 if splits is None else splits, seed, samples)
    if report and out is None:
        raise ValueError("compare: report is True and out is None, wanted a folder to write it to")
    dataset = data if isinstance(data, Dataset) else datasets.load(
        data, target=target, split_key=split_key
    )  # fmt: skip
    methods = methods_for_task(wanted, dataset.task)
    if wanted is not _DEFAULT_METHODS and methods != wanted:
        raise ValueError(
            f"compare: methods has {sorted(set(wanted) - set(methods))}, which fit Gaussian noise "
            f"alone, and the target of {dataset.name} is classes ({dataset.task}); leave them out"
        )
    setting = _for_task(setting, dataset, likelihood)
    if splits is None:
        splits = min(_SPLITS, _SPLITS if dataset.test_index is None else len(dataset.test_index))
    parts = datasets.splits(dataset, splits, seed)
    folder = None if out is None else prepare(Path(out), overwrite)
    config = dataclasses.asdict(setting) | {
        "methods": list(methods), "splits": splits, "seed": seed, "samples": samples,
        "evidence": evidence, "target": target, "split_key": split_key,
        "x64": jnp.zeros(()).dtype == jnp.float64,
    }  # fmt: skip
    outcome = Comparison(
        {
            "data": _describe(dataset),
            "config": config,
            "versions": versions(),
            "splits": [],
            "summary": [],
        }
    )
    for split, (train, test) in enumerate(parts):
        for method in methods:
            label = f"{method} {split + 1}/{splits}" if progress else False
            row, run = _fit(dataset, train, test, split, method, setting, config, label)
            if folder is not None and not outcome.splits:
                _clear(folder)
            outcome.splits.append(row)
            outcome.record["summary"] = _summarise(outcome.splits, methods, dataset.task)
            if split == 0 and run is not None:
                outcome.fits[method] = run
                if folder is not None:
                    _write_arviz(folder / f"{method}.nc", run.tree)
            if folder is not None:
                write_json(folder / "results.json", outcome.record)
            if on_row is not None:
                on_row(row)
    if folder is not None and outcome.fits:
        drawn = figures(outcome.fits)
        for name, figure in drawn.items():
            figure.savefig(folder / f"{name}.png", dpi=150)
        if report:
            write_report(folder / "report.html", outcome.record, outcome.fits, drawn)
    return outcome


def _fit(
    data: Dataset,
    train: np.ndarray,
    test: np.ndarray,
    split: int,
    method: str,
    setting: Setting,
    config: dict[str, Any],
    label: str | bool,
) -> tuple[dict[str, Any], Run | None]:
    """One row of results, and the run behind it, or None if the fit failed."""
    x, y, x_test, y_test = data.x[train], data.y[train], data.x[test], data.y[test]
    scaled = y if data.task == "regression" else None
    standardizer = Standardizer.fit(x, scaled, shared=data.shared_unit)
    key = random.fold_in(random.key(config["seed"]), split)
    key_fit, _, key_test = random.split(key, 3)
    own_x = standardizer.inputs(x)
    own_y = jnp.asarray(y) if scaled is None else standardizer.outputs(y)
    row: dict[str, Any] = {"split": split, "method": method, **dict.fromkeys(METRICS[data.task])}
    row["steps"] = setting.steps
    begun = time.perf_counter()
    try:
        fitted = METHODS[method](key_fit, own_x, own_y, setting, label)
    except (NonFiniteLossError, UnsuitableError) as error:
        return {**row, "error": str(error)}, None
    seconds = time.perf_counter() - begun

    held = fitted.predict(
        key_test, x_test, num_samples=config["samples"], standardizer=standardizer
    )
    row |= score(data.task, held, y_test)
    row |= {"elbo_per_datum": fitted.elbo_per_datum, "seconds": seconds}
    row["steps"] = len(fitted.result.losses)
    if fitted.chains is not None:
        row |= chain_diagnostics(fitted.chains)
    if config["evidence"]:
        row |= _evidence(random.fold_in(key, 1), fitted, own_x, own_y, label)
    run = Run(fitted, standardizer, held, x, y, x_test, y_test, data, config)
    return row, run


def _evidence(
    key: jax.Array, fitted: Fitted, x: jax.Array, y: jax.Array, label: str | bool
) -> dict[str, Any]:
    """What the bound is a bound of, and how far below it the bound is, in nats per datum.

    With a note of what there is to say of them, or in their place.
    """
    guide: Any = fitted.guide
    if fitted.elbo_per_datum is None:
        return {"evidence_note": "no bound, of which the evidence would be one"}
    if (why := why_no_evidence(guide)) is not None:
        return {"evidence_note": why}
    if getattr(guide, "row_params", ()):
        return {"evidence_note": "latent inputs, which annealing does not sample"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed_evidence: ")  # the note has them
        found = annealed_evidence(
            key, fitted.model, guide, fitted.result.params, x, y, progress=label,
            **_ANNEALING, **fitted.kwargs,
        )  # fmt: skip
    value = found.log_evidence / len(y)
    note = {"evidence_note": "; ".join(found.doubts)} if found.doubts else {}
    return note | {
        "evidence_per_datum": value,
        "evidence_error": found.standard_error / len(y),
        "gap": value - fitted.elbo_per_datum,
    }


def _summarise(
    rows: list[dict[str, Any]], methods: Sequence[str], task: str
) -> list[dict[str, Any]]:
    """Mean and standard error of every metric over the splits that were fitted."""
    summary = []
    for method in methods:
        own = [r for r in rows if r["method"] == method and "error" not in r]
        if own:
            summary.append(
                {"method": method} | {m: _mean_of([r[m] for r in own]) for m in METRICS[task]}
            )
    return summary


def _mean_of(values: list[float | None]) -> dict[str, float | None]:
    known = [v for v in values if v is not None]
    if not known:
        return {"mean": None, "se": None}
    return dict(zip(("mean", "se"), metrics.mean_and_standard_error(known), strict=True))


def _check(methods: Sequence[str], setting: Setting, splits: int, seed: int, samples: int) -> None:
    unknown = [m for m in methods if m not in METHODS]
    if unknown or not methods or len(set(methods)) < len(methods):
        got = unknown[0] if unknown else ",".join(methods)
        raise ValueError(
            f"compare: methods has {got!r}, wanted different ones of {', '.join(METHODS)}"
        )
    if setting.model not in MODELS:
        raise ValueError(f"compare: model is {setting.model!r}, wanted one of {', '.join(MODELS)}")
    numbers = {
        "depth": setting.depth, "inducing": setting.inducing, "steps": setting.steps,
        "batch": setting.batch, "splits": splits, "samples": samples,
        "draws": setting.draws, "chains": setting.chains,
        "width": 1 if setting.width is None else setting.width,
    }  # fmt: skip
    for name, value in numbers.items():
        check_count("compare", name, value)
    if not 0 <= seed < 2**32:
        raise ValueError(f"compare: seed is {seed}, wanted at least 0 and below 2^32")
    if not 0 < setting.learning_rate < float("inf"):
        raise ValueError(
            f"compare: learning_rate is {setting.learning_rate}, wanted a positive number"
        )


def _for_task(setting: Setting, data: Dataset, likelihood: str | None) -> Setting:
    """With the likelihood of the data's task."""
    known = LIKELIHOODS[data.task]
    name = next(iter(known)) if likelihood is None else likelihood
    if name not in known:
        raise ValueError(
            f"compare: likelihood is {name!r}, wanted one for the target of {data.name} "
            f"({data.task}): {', '.join(known)}"
        )
    outputs = int(data.y.max()) + 1 if data.task == "multiclass" else 1
    return dataclasses.replace(setting, task=data.task, likelihood=name, outputs=outputs)


def _clear(folder: Path) -> None:
    """Remove what an earlier comparison left, now that there is something to put in its place."""
    for name in (*(f"{m}.nc" for m in METHODS), *(f"{f}.png" for f in FIGURES), "report.html"):
        (folder / name).unlink(missing_ok=True)


def _describe(data: Dataset) -> dict[str, Any]:
    return {
        "name": data.name, "rows": len(data.y), "columns": data.x.shape[1], "task": data.task,
        "target": data.y_name, "source": data.source,
        "own_splits": None if data.test_index is None else len(data.test_index),
    }  # fmt: skip


def _write_arviz(path: Path, tree: Any) -> None:
    draft = path.with_suffix(".nc.part")
    tree.to_netcdf(draft, engine="h5netcdf")
    draft.replace(path)
