"""`open_source`: a data set of any kind, of which inputs are made or rows are read when needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._checks import check_kind
from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import ArrowFrame
from dgp_ppl.datasets._dataset import Dataset, check_size
from dgp_ppl.datasets._load import is_folder, open_data, refuse_split_key, strict_dataset
from dgp_ppl.datasets._messages import constant_target, named, quoted
from dgp_ppl.datasets._npz import DEFAULT_SPLITS
from dgp_ppl.datasets._preprocessor import Preprocessor, find_target, learn
from dgp_ppl.datasets._read import Table
from dgp_ppl.datasets.rows import Rows
from dgp_ppl.datasets.rows._parquet import parquet_columns
from dgp_ppl.datasets.rows._readers import CellCheck

_MOST_TEST_ROWS = 10_000
_MOST_CLASSES = 1000


class TableSource:
    """A table whose inputs are made for each split, from what its training rows say.

    What does not depend on a split is checked when it is made.

    Attributes:
        whole: all rows; those without a target tell categories too.
        rows: positions of the rows with a target, [N].
        y: their targets, [N].
    """

    def __init__(
        self, name: str, table: Table, target: str | None, source: str, drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.name, self.whole, self.source = name, table, source
        self.target = find_target(table.where, table.names, target)
        self.drop, self.categorical = drop, categorical
        learnt = learn(table, self.target, None, drop, categorical)
        y, present = learnt.targets(table)
        self.task, self.rows = learnt.task, np.flatnonzero(present)
        self.y = y[self.rows]
        check_size(table.where, len(self.rows))

    test_index, num_classes = None, Dataset.num_classes  # tables come without splits

    def __len__(self) -> int:
        return len(self.y)

    def fit(self, train: np.ndarray) -> Preprocessor:
        """Fit a preprocessor to training rows: positions among the rows with a target."""
        return learn(self.whole, self.target, self.rows[train], self.drop, self.categorical)

    def dataset(self, preprocessor: Preprocessor) -> Dataset:
        """Return the data set with the inputs that a preprocessor makes of all rows."""
        x, names = preprocessor.inputs(self.whole.take(self.rows)), preprocessor.names
        return Dataset(
            self.name, x, self.y, self.task, None, names, self.target, self.source,
            preprocessor=preprocessor,
        )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RowSource:
    """A source of rows with a task, whose rows are read block by block; else as `Dataset`."""

    name: str
    rows: Rows  # inputs [N, D] and targets [N]
    task: str
    num_classes: int
    x_names: tuple[str, ...]
    y_name: str
    source: str

    test_index, shared_unit, preprocessor = None, False, None

    def __len__(self) -> int:
        return len(self.rows)

    def test_rows(self, seed: int, split: int) -> np.ndarray:
        """Draw the numbers of a split's test rows: a tenth of all, and at most 10,000."""
        num = min(-(-len(self) // 10), _MOST_TEST_ROWS)
        rng = np.random.default_rng((seed, split))
        return np.sort(rng.choice(len(self), num, replace=False))


def open_source(
    data: str | os.PathLike[str] | ArrowFrame | Table | Dataset | Rows | RowSource, *,
    target: str | None = None, split_key: str = DEFAULT_SPLITS, drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (), strict: bool = False,
) -> Dataset | TableSource | RowSource:  # fmt: skip
    """Open what `compare` takes; the arguments are `compare`'s.

    Return a `RowSource` for folders and `Rows`; a `TableSource` for tables, if not `strict`: .csv
    and .parquet files, and frames; else a `Dataset`.
    """
    for name, names in {"drop": drop, "categorical": categorical}.items():
        check_kind("compare", name, names, Iterable, "names of columns")
    drop, categorical = ([o] if isinstance(o, str) else list(o) for o in (drop, categorical))
    if isinstance(data, str | os.PathLike) and is_folder(os.fspath(data)):
        refuse_split_key(named(data), split_key)
        return _open_folder(Path(data).expanduser(), target, drop, categorical)
    if isinstance(data, Rows):
        refuse_split_key("Rows", split_key)
        if target not in (None, "y") or drop or categorical not in ([], ["y"]):
            raise DataError(
                f"Rows have no columns but x and y: target is {target!r}, drop {drop!r} and "
                f"categorical {categorical!r}, wanted target='y' or None, and categorical='y' if "
                "the targets are classes; take columns by Rows.from_parquet or Rows.map"
            )
        return _open_rows(data, "rows", None, "y", "rows", bool(categorical))
    if isinstance(data, Dataset) and np.shape(data.y)[1:] == (1,):
        data = replace(data, y=np.asarray(data.y)[:, 0])
    if isinstance(data, Dataset) and np.ndim(data.y) != 1:
        raise DataError(
            f"{data.name}: y has shape {np.shape(data.y)}, wanted [N] or [N, 1], as several "
            "outputs are not supported; make a data set of each column, with y=y[:, j]"
        )
    found: Any = data
    if not isinstance(data, Dataset | RowSource):
        found = open_data(data, target, split_key, texts=categorical)
    if (drop or categorical) and (strict or not isinstance(found, tuple)):
        option, names = ("drop", drop) if drop else ("categorical", categorical)
        reason = "strict takes all columns as they are" if strict else "the data are no table"
        raise DataError(f"{option} is {quoted(names)}, but {reason}; leave one of them out")
    if isinstance(found, tuple):
        if strict:
            return strict_dataset(*found)
        return TableSource(*found, drop=drop, categorical=categorical)
    return found


def _open_folder(
    path: Path, target: str | None, drop: Sequence[str], categorical: Sequence[str]
) -> RowSource:
    """Open a folder of .parquet files, which is read block by block."""
    names = parquet_columns(path)
    target = find_target(named(path), names, target, drop, categorical)
    if encoded := [n for n in categorical if n != target]:
        raise DataError(
            f"{path}: categorical is {quoted(encoded)}, but inputs of a folder are read as "
            "numbers, block by block; encode them in the files, or give one .parquet file, which "
            "is read whole"
        )
    left_out = {target, *drop}
    inputs = tuple(n for n in names if n not in left_out)
    rows = Rows.from_parquet(path, inputs=inputs, target=target)
    name = path.name or str(path)
    return _open_rows(rows, name, inputs, target, f"folder {path}", bool(categorical))


def _open_rows(
    rows: Rows, name: str, x_names: tuple[str, ...] | None, y_name: str, source: str, classes: bool
) -> RowSource:
    """Find the task of a source of inputs [N, D] and targets [N] or [N, 1].

    It is binary if the targets are stored as whole numbers, and are 0 and 1 alone, as for files;
    multiclass if they have to be `classes`. A pass over the rows ends when the task is known. Each
    later reading checks the cells that it reads.
    """
    shapes, types = [a.shape[1:] for a in rows.first], [a.dtype for a in rows.first]
    are_arrays = len(shapes) == 2 and len(shapes[0]) == 1 and shapes[1] in ((), (1,))
    if not are_arrays or any(t.kind not in "biuf" for t in types):
        raise DataError(
            f"{name}: a row has arrays of shapes {[list(s) for s in shapes]} and types "
            f"{list(map(str, types))}, wanted numbers: inputs, [D], and a target, [] or [1]; make "
            "them by Rows.map"
        )
    check_size(name, len(rows))
    if shapes[1] == (1,):
        rows = rows.map(_with_flat_target)
    x_names = tuple(f"x{i}" for i in range(shapes[0][0])) if x_names is None else x_names
    rows = rows.map(CellCheck(name, x_names, y_name))
    first, varies, num = rows.first[1][0], False, 0
    most = _MOST_CLASSES + 1 if classes else 2 if types[1].kind != "f" else 0
    for _, y in rows.blocks():
        varies = varies or bool((y != first).any())
        if most and ((y != np.floor(y)).any() or y.min() < 0 or y.max() >= most):
            if classes:
                raise DataError(
                    f"{name}: {y_name!r} is a target of classes, and has other values than 0, 1, "
                    f"..., {most - 1}; number the classes from 0"
                )
            most = 0
        if varies and not most:
            break
        num = max(num, int(y.max()) + 1) if most else 0
    if not varies:
        raise constant_target(name, y_name, str(first))
    if not most:
        return RowSource(name, rows, "regression", 0, x_names, y_name, source)
    task = "binary" if num == 2 else "multiclass"
    return RowSource(name, rows.map(_with_classes), task, num, x_names, y_name, source)


def _with_classes(x: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:  # processes import it by name
    return x, y.astype(np.int32)


def _with_flat_target(x: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    return x, y[:, 0]
