"""`open_source`: a data set of any kind, whose inputs may be made again for each split."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import ArrowFrame, frame_name
from dgp_ppl.datasets._dataset import MIN_ROWS, Dataset
from dgp_ppl.datasets._load import is_folder, load, refuse_split_key
from dgp_ppl.datasets._messages import named, quoted
from dgp_ppl.datasets._npz import DEFAULT_SPLITS
from dgp_ppl.datasets._openml import PREFIX, fetch_frame
from dgp_ppl.datasets._row_source import RowSource, open_folder, open_rows
from dgp_ppl.datasets.rows import Rows
from dgp_ppl.datasets.tables import Preprocessor, Table, read_table
from dgp_ppl.datasets.tables._preprocessor import find_target
from dgp_ppl.datasets.tables._read import TABLE_SUFFIXES

__all__ = ["TableSource", "open_source"]


@dataclass(frozen=True, eq=False, repr=False)
class TableSource:
    """A table whose inputs are made for each split, from what its training rows say.

    Attributes:
        name: name of the data set.
        whole: the table. Rows without a target tell categories.
        rows: positions of the rows with a target, [N].
        y: their targets, [N], as in `Dataset`.
        task: "regression", "binary" or "multiclass".
        target: the column to predict.
        source: where the data come from, on one line.
        drop: columns to leave out.
        categorical: columns of numbers to take as categories.
    """

    name: str
    whole: Table
    rows: np.ndarray
    y: np.ndarray
    task: str
    target: str
    source: str
    drop: str | Sequence[str] = ()
    categorical: str | Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.y)

    @property
    def num_classes(self) -> int:
        """Number of classes C; 0 for regression."""
        return 0 if self.task == "regression" else int(self.y.max()) + 1

    @property
    def table(self) -> Table:
        """The rows that have a target."""
        return self.whole.take(self.rows)

    @property
    def without_target(self) -> int:
        """Number of rows without a target, which are left out."""
        return len(self.whole) - len(self.rows)

    def __repr__(self) -> str:
        left_out = f", {self.without_target:,} without a target" * bool(self.without_target)
        return (
            f"TableSource({self.name!r}: {self.task} of {self.target} in {self.table}, "
            f"{len(self.y):,} rows with a target{left_out})"
        )

    @property
    def test_index(self) -> None:
        """Tables come without splits."""

    def fit(self, train: np.ndarray) -> Preprocessor:
        """Fit a preprocessor to training rows; its `report` says what it does.

        Args:
            train: positions of the training rows among the rows with a target.

        Raises:
            DataError: if no column is left as an input.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report has them
            fitted = Preprocessor.fit(
                self.whole, self.target, rows=self.rows[train], drop=self.drop,
                categorical=self.categorical,
            )  # fmt: skip
        if not self.without_target:
            return fitted
        many = "s" * (self.without_target > 1)
        step = ("left out", f"{self.without_target:,} row{many} of the table without a target")
        *steps, target = fitted.report.steps
        return replace(fitted, report=replace(fitted.report, steps=(*steps, step, target)))

    def dataset(self, preprocessor: Preprocessor) -> Dataset:
        """Return the data set with the inputs that a preprocessor makes of all rows."""
        return Dataset(
            name=self.name,
            x=preprocessor.inputs(self.table),
            y=self.y,
            task=self.task,
            test_index=None,
            x_names=preprocessor.names,
            y_name=self.target,
            source=self.source,
            preprocessor=preprocessor,
        )


def open_source(
    data: str | os.PathLike[str] | ArrowFrame | Table | Dataset | Rows | RowSource,
    *,
    target: str | None = None,
    split_key: str = DEFAULT_SPLITS,
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    strict: bool = False,
) -> Dataset | TableSource | RowSource:
    """Open a data set of any kind.

    Args:
        data: a `Dataset`, a name or file that `load` takes, a data frame, a `Table`, a folder of
            .parquet files, or `Rows`.
        target: the column to predict, for data with columns.
        split_key: the array of splits in an .npz file.
        drop: columns of a table to leave out.
        categorical: columns of numbers to take as categories; of a folder the target alone, and of
            `Rows` "y", if the targets are classes.
        strict: whether a table must hold finite numbers alone, as for `load`. A folder must in any
            case.

    Returns:
        A `RowSource` for folders and `Rows`; a `TableSource` for tables, that is for .csv and
        .parquet files, frames and OpenML; else, or if `strict`, a `Dataset`.

    Raises:
        DataError: if the data cannot be used.
    """
    is_path = isinstance(data, str | os.PathLike)
    text = os.fspath(data) if is_path else ""
    if is_path and is_folder(text):
        refuse_split_key(named(text), split_key)
        return open_folder(text, target, _several(drop), _several(categorical))
    if isinstance(data, Rows):
        refuse_split_key("Rows", split_key)
        if (
            target not in (None, "y")
            or drop
            or _several(categorical) not in ([], (), ["y"], ("y",))
        ):
            raise DataError(
                f"Rows have no columns but x and y: target is {target!r}, drop {drop!r} and "
                f"categorical {categorical!r}, wanted target='y' or None, and categorical='y' if "
                "the targets are classes; take columns by Rows.from_parquet or Rows.map"
            )
        return open_rows(data, classes=bool(categorical))
    is_openml = isinstance(data, str) and text.startswith(PREFIX)
    is_table = is_openml or text.lower().endswith(TABLE_SUFFIXES)
    is_table = is_table or not (is_path or isinstance(data, Dataset | RowSource))
    if (drop or categorical) and (strict or not is_table):
        option, names = ("drop", drop) if drop else ("categorical", categorical)
        names = _several(names)
        reason = "strict takes all columns as they are" if strict else "the data are no table"
        raise DataError(f"{option} is {quoted(names)}, but {reason}; leave one of them out")
    if isinstance(data, Dataset):
        return _with_single_target(data)
    if isinstance(data, RowSource):
        return data
    if strict and isinstance(data, Table):
        raise DataError("strict takes files and frames, and the data are a Table; leave it out")
    if strict or not is_table:
        return load(data, target=target, split_key=split_key)  # type: ignore[arg-type]
    if is_openml:
        refuse_split_key(named(text), split_key)
        frame, target, address = fetch_frame(text, target)
        table = replace(read_table(frame), where=named(text))
        return _table_source(table, target, text, address, drop, categorical)
    if is_path:
        path = Path(os.path.expanduser(text))
        refuse_split_key(named(path), split_key)
        table = read_table(path, keep=target)
        return _table_source(table, target, path.stem, f"file {path}", drop, categorical)
    refuse_split_key(frame_name(data), split_key)
    table = read_table(data, keep=target)  # type: ignore[arg-type]
    return _table_source(table, target, "table", table.where, drop, categorical)


def _several(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _with_single_target(data: Dataset) -> Dataset:
    """Return a data set whose targets are [N], from those that are [N] or [N, 1]."""
    y = np.asarray(data.y)
    if y.ndim == 2 and y.shape[1] == 1:
        return replace(data, y=y[:, 0])
    if y.ndim != 1:
        raise DataError(
            f"{data.name}: y has shape {y.shape}, wanted [N] or [N, 1], as several outputs are not "
            "supported; make a data set of each column, with y=y[:, j]"
        )
    return data


def _table_source(
    table: Table, target: str | None, name: str, origin: str, drop: str | Sequence[str],
    categorical: str | Sequence[str],
) -> TableSource:  # fmt: skip
    """Make a source, and check all that does not depend on a split."""
    target = find_target(table.where, table.names, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = Preprocessor.fit(table, target, drop=drop, categorical=categorical)
    y, present = whole.targets(table)
    rows = int(present.sum())
    if rows < MIN_ROWS:
        raise DataError(
            f"{table.where}: {rows} row{'' if rows == 1 else 's'} of data with a target, wanted "
            f"at least {MIN_ROWS} (two for training, one for testing); add rows"
        )
    return TableSource(
        name, table, np.flatnonzero(present), y[present], whole.task, target, origin, drop,
        categorical,
    )  # fmt: skip
