"""`compare`: fit several methods to the splits of a data set, and record their results."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgp_ppl._checks import check_count, check_flags, check_kind
from dgp_ppl._errors import DataError, Interrupted, printable
from dgp_ppl._files import replacing, versions
from dgp_ppl.comparison import methods as _methods  # noqa: F401 - registers the methods
from dgp_ppl.comparison._builders import check_categories
from dgp_ppl.comparison._executor import check_forks, fits_on
from dgp_ppl.comparison._folder import (
    clear_folder,
    describe,
    finished_rows,
    prepare_folder,
    write_json,
)
from dgp_ppl.comparison._in_one_program import fits_in_one_program
from dgp_ppl.comparison._method import check_methods
from dgp_ppl.comparison._metrics import summarise
from dgp_ppl.comparison._rivals import RIVALS, estimators, identity, parted, rival_versions
from dgp_ppl.comparison._run import Job, Run, run_method
from dgp_ppl.comparison._setting import (
    OPTIONS,
    Setting,
    complete_setting,
    make_setting,
    with_options,
)
from dgp_ppl.comparison._source import chosen_methods, divided, split_numbers
from dgp_ppl.datasets import Dataset, Rows
from dgp_ppl.datasets._arrow import ArrowFrame
from dgp_ppl.datasets._npz import DEFAULT_SPLITS
from dgp_ppl.datasets._read import Table
from dgp_ppl.datasets._source import RowSource, open_source


@dataclasses.dataclass(repr=False)
class Comparison:
    """The results of `compare`.

    Attributes:
        record: the content of results.json: ``data``, ``config``, ``versions``, ``splits`` and
            ``summary``.
        fits: the `Run` of each method on the first of the splits. ``fits["dsvi"].tree`` is its
            ArviZ tree.
    """

    record: dict[str, Any]
    fits: dict[str, Run] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        methods = ", ".join(dict.fromkeys(row["method"] for row in self.summary))
        return (
            f"Comparison: methods {methods} on {len(self.splits)} rows of splits and methods; "
            "see summary, splits and fits"
        )

    @property
    def splits(self) -> list[dict[str, Any]]:
        """One row for every split and method."""
        return self.record["splits"]

    @property
    def summary(self) -> list[dict[str, Any]]:
        """One row for every method: the mean and standard error of each metric over splits."""
        return self.record["summary"]


@with_options([option for option in OPTIONS if not option.hidden])
def compare(
    data: str | os.PathLike[str] | ArrowFrame | Table | Dataset | Rows,
    methods: Sequence[Any] | None = None,
    *,
    setting: Setting | None = None,
    splits: int | Sequence[int] | None = None,
    seed: int = 0,
    groups: str | None = None,
    target: str | None = None,
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    strict: bool = False,
    split_key: str = DEFAULT_SPLITS,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    report: Callable[[Comparison, Path], None] | None = None,
    executor: Executor | None = None,
    in_one_program: bool | None = None,
    progress: bool = True,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Comparison:
    """Fit each method to each split of a data set, and measure it on the held-out rows.

    The columns of .csv and .parquet files and data frames may be numbers, dates, text or
    booleans, with missing cells; a `Preprocessor`, fitted to the training rows of each split, makes
    inputs of them. The training rows also set the scale of the inputs and of a regression target.
    The ELBO is in nats per row of the standardised target; RMSE, log density and CRPS are in the
    data's units. Classes have accuracy, log loss (nats), expected calibration error, Brier score,
    and the AUC if there are two. ``repeated`` counts the held-out rows whose inputs are training
    rows too, and ``rmse_of_unseen`` and so on are of the other ones.

    `Rows` and folders of .parquet files are read block by block, and need not fit in memory. Their
    columns are numbers. A split holds out a tenth of the rows at random, at most 10,000.

    ::

        comparison = compare("diabetes", ["sgpr", "dsvi"], steps=1500, splits=2)
        comparison.summary[0]["rmse"]  # {"mean": ..., "se": ...}

    Args:
        data: a `Dataset`; a name or file that `datasets.load` takes; a data frame; a folder of
            .parquet files; or `Rows` of inputs, [N, D], and targets, [N] or [N, 1].
        methods: names in `dgp_ppl.comparison.METHODS`; by default sgpr, dsvi and dspp, and for
            classes, folders and `Rows` dsvi and dspp. Also "catboost", "ngboost" and
            "hist_gradient_boosting", of the extra ``rivals``, and any estimators with
            scikit-learn's interface, or pairs (name, estimator). They are fitted to the
            standardised rows. Of ``pred_dist(X)``, ``predict(X, return_std=True)`` and
            ``predict(X, quantiles=...)`` the first that there is gives the density; what predicts
            a mean alone gets a Gaussian with the variance of its errors on a tenth of the training
            rows, and then all rows. What takes rows to stop by (``eval_set``, ``Y_val``) gets
            this tenth, and is not fitted again. ``density`` of a row says which it is.
        setting: the options that all methods share; None for the defaults of `Setting`.
        splits: number of splits: the first ones of the data set if it has splits, else random ones
            with 90 % of the rows for training. By default three, or fewer if the data set has
            fewer, and one for folders and `Rows`. ``splits=[4]`` takes the fifth alone.
        seed: seed of the random splits and of all fits.
        groups: the column of a table, whose rows with the same cell stay on one side of each random
            split; or "inputs", for rows with the same inputs. It may be a column to `drop`.
        target: the column to predict, for data with columns. Text and booleans are classes. Rows
            without a target are left out.
        drop: columns to leave out.
        categorical: columns of numbers to take as categories. The target's numbers are then
            classes. A folder takes the target alone, and `Rows` take "y", classes 0 ... C-1.
        strict: whether to refuse a table with anything but finite numbers.
        split_key: the array of splits in an .npz file.
        out: folder for results.json and METHOD.nc; None writes nothing. It is updated after every
            fit, so an interrupted comparison keeps the finished fits.
        overwrite: whether `out` may hold an earlier comparison, which is then replaced.
        resume: whether to go on with an interrupted comparison of the same options and data in
            `out`, and keep its finished fits. For a report the first split is fitted again, and
            without it those of its fits whose METHOD.nc is missing.
        report: what writes more to `out`: a function of the comparison and the folder, such as
            `dgp_ppl.report.write_figures`, or `dgp_ppl.report.write_report`, which adds one page
            with all tables and figures. It is called when the first split is done, and at the end.
        executor: where to run the fits: a `concurrent.futures.Executor`, such as
            ``local_workers(4)`` of `dgp_ppl.comparison` or Dask's ``client.get_executor()``, whose
            tasks are the fits of one method to one split. Results are the same. None runs all fits
            here, in order. A pool of forked processes is refused: JAX hangs in them.
        in_one_program: whether to do all splits and restarts of dsvi or dspp in one program, as
            `fit_many` does. Rows then have ``in_one_program``, the number of fits, and ``seconds``
            is a split's share. Numbers differ from single fits by rounding, and by the minibatches
            if splits differ in their numbers of rows. None does it on a GPU, which one small fit
            does not fill, without an executor.
        progress: whether to print what was done with a table, and to show a progress bar for each
            fit, or one for all fits of an executor.
        on_row: called with each row of ``splits`` when it is done, and first with the rows that
            `resume` keeps.
        **options: options of `Setting`, such as ``depth=3``; they change `setting`.

    Returns:
        The results. The row of a failed fit has an ``error``, and its metrics are None.

    Raises:
        DataError: if the data or `out` cannot be used. Fits that were finished before are in `out`.
        Interrupted: at Ctrl-C, a `KeyboardInterrupt`. Its `result` is the `Comparison` so far.
        BrokenExecutor: if a worker dies, a `RuntimeError`. Finished fits are in `out`.
        TypeError: if an option is unknown or of another type; if a worker's fit cannot be pickled.
        ValueError: if a name is unknown or a number is out of range.
    """
    setting = make_setting("compare", setting, options)
    theirs: dict[str, Any] = {}  # estimators
    check_kind("compare", "methods", methods, Sequence | None, "a list of methods")
    if methods is not None:
        methods, theirs = parted(methods)
        check_methods(methods, RIVALS, theirs)
    wanted = "an Executor: dgp_ppl.comparison.local_workers(4), or Dask's client.get_executor()"
    check_kind("compare", "executor", executor, Executor | None, wanted)
    check_forks(executor)
    if in_one_program and executor is not None:
        raise DataError(
            "compare: in_one_program is True and executor is given, wanted one of them: an "
            "executor runs each fit by itself"
        )
    given = None if splits is None else split_numbers(splits)
    check_count("compare", "seed", seed, 0)
    check_flags("compare", strict=strict, overwrite=overwrite, resume=resume)
    check_kind("compare", "out", out, str | os.PathLike | None, "the path of a folder")
    if seed >= 2**32:
        raise DataError(f"compare: seed is {seed}, wanted at least 0 and below 2^32")
    if report is not None and (out is None or not callable(report)):
        raise DataError(
            f"compare: report is {report!r} and out is {out}, wanted a function, such as "
            "dgp_ppl.report.write_report, and a folder to write to"
        )
    if resume and (out is None or overwrite):
        raise DataError(
            f"compare: resume is True, out is {out} and overwrite {overwrite}, wanted the "
            "folder of an interrupted comparison, and overwrite=False"
        )
    source = open_source(
        data, target=target, split_key=split_key, drop=drop, categorical=categorical, strict=strict
    )
    methods = chosen_methods(source, methods)
    rivals = estimators(methods, theirs, source, seed)
    classes = source.num_classes if source.task == "multiclass" else 1
    where = f"the target of {source.name}"
    setting = complete_setting("compare", setting, source.task, classes, target=where)
    waiting = divided(source, given, seed, groups)
    numbers, first = [split.index for split in waiting], waiting[0].data
    if setting.category_kernel:
        check_categories("compare", first, setting.model)
    _tell(first, progress)
    folder = None if out is None else prepare_folder(Path(out), overwrite, resume)
    config = dataclasses.asdict(setting) | {
        "methods": list(methods), "seed": seed, "groups": groups, "target": target,
        "split_key": split_key,
        "splits": numbers if np.iterable(splits) else len(numbers),
        "drop": _names(drop), "categorical": _names(categorical), "strict": strict,
        "x64": jnp.zeros(()).dtype == jnp.float64,
    }  # fmt: skip
    if rivals:
        config["rivals"] = {name: identity(estimator) for name, estimator in rivals.items()}
    known_versions = versions() | rival_versions(rivals)
    record = {"data": describe(first), "config": config, "versions": known_versions}
    comparison = Comparison(record)
    places = [(s, method) for s in numbers for method in methods]
    known = []
    if folder is not None and resume:
        known = finished_rows(folder, record, report is not None)
    rows = {(row["split"], row["method"]): row for row in known}  # of finished fits

    def fill_record() -> None:
        record["splits"] = [rows[place] for place in places if place in rows]
        record["summary"] = summarise(record["splits"], methods, source.task)

    fill_record()

    def jobs() -> Iterator[Job]:
        for done in range(1, len(numbers) + 1):
            split = waiting.pop(0)  # its inputs are made when it is fitted, and dropped then
            for method in methods:
                if (split.index, method) not in rows:
                    label = f"{method} {done}/{len(numbers)}" if progress else False
                    yield Job(
                        method, split, setting, config, label, keeps_run=done == 1,
                        keeps_tree=done == 1 and folder is not None, rival=rivals.get(method),
                    )  # fmt: skip

    def keep(job: Job, row: dict[str, Any], run: Run | None) -> None:
        is_first = not rows and not resume
        rows[job.split.index, job.method] = row
        fill_record()
        if job.keeps_run and run is not None:
            found = comparison.fits | {job.method: run}
            comparison.fits = {m: found[m] for m in methods if m in found}
        if folder is not None:
            try:
                write_json(folder / "results.json", record, new=is_first and not overwrite)
            except DataError:
                del rows[job.split.index, job.method]
                raise
            if is_first:
                clear_folder(folder)
            if job.keeps_run and run is not None:
                # Through memory: HDF5 crashes where it cannot write.
                with replacing(folder / f"{job.method}.nc") as draft:
                    draft.write_bytes(run.tree.to_netcdf(engine="h5netcdf"))
        if on_row is not None:
            on_row(row)
        is_first_split_done = job.keeps_run and all((numbers[0], m) in rows for m in methods)
        if is_first_split_done and len(numbers) > 1:
            write_more()

    def write_more() -> None:
        if report is not None and folder is not None and comparison.fits:
            report(comparison, folder)

    def how_to_go_on() -> str:
        start = f"{len(rows)} of {len(places)} fits finished"
        if folder is None:
            return f"{start}; an `out` folder keeps fits in files"
        return (
            f"{start} and kept in {folder}; to go on, give the same options with resume=True "
            f"(--resume --out {folder})"
        )

    if executor is not None:
        fits = fits_on(executor, jobs(), progress and on_row is None)
    elif in_one_program or (in_one_program is None and jax.default_backend() != "cpu"):
        fits = fits_in_one_program(list(jobs()))
    else:
        fits = ((job, *run_method(job)) for job in jobs())
    try:
        with contextlib.closing(fits):
            if on_row is not None:
                for row in known:
                    on_row(row)
            for found in fits:
                keep(*found)
                del found  # with its data, before the data of the next split are made
    except KeyboardInterrupt as interrupt:
        if folder is not None and len(rows) > len(known):
            write_json(folder / "results.json", record)  # it may lack the last row
        text = f"compare: interrupted with {how_to_go_on()}"
        raise Interrupted(text, comparison) from interrupt
    except DataError as error:
        if not rows:
            raise
        raise DataError(f"{error}; {how_to_go_on()}") from error
    except BrokenExecutor as error:
        raise BrokenExecutor(
            "compare: a worker died; look for too little memory (fewer workers need less) or for "
            f"a method that workers cannot import; {how_to_go_on()}"
        ) from error
    write_more()
    return comparison


def _tell(data: Dataset | RowSource, progress: bool) -> None:
    """Print what was done with a table; without progress, only warn."""
    if data.preprocessor is not None and progress:
        for line in str(data.preprocessor.report).splitlines():
            print(printable(line), file=sys.stderr)
    elif data.preprocessor is not None:
        for text in data.preprocessor.report.warnings:
            warnings.warn(printable(f"compare: {text}"), stacklevel=3)


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
