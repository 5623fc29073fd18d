"""`RowSource`: rows that need not fit in memory, as a data set for `compare`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._dataset import MIN_ROWS
from dgp_ppl.datasets._messages import named, quoted
from dgp_ppl.datasets.rows import Rows, parquet_columns
from dgp_ppl.datasets.tables._preprocessor import find_target

__all__ = ["RowSource", "open_folder", "open_rows"]

_MOST_TEST_ROWS = 10_000
_MOST_CLASSES = 1000


@dataclass(frozen=True, eq=False, repr=False)
class RowSource:
    """A source of rows with a task, whose rows are read block by block.

    Attributes:
        name: name of the data set.
        rows: inputs in the units of the source, [N, D], and targets, [N]: numbers for regression,
            else the classes 0 ... C-1.
        task: "regression", "binary" or "multiclass".
        num_classes: number of classes C; 0 for regression.
        x_names: names of the D inputs.
        y_name: name of the target.
        source: where the data come from, on one line.
    """

    name: str
    rows: Rows
    task: str
    num_classes: int
    x_names: tuple[str, ...]
    y_name: str
    source: str

    test_index = None
    shared_unit = False
    preprocessor = None

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return (
            f"RowSource({self.name!r}: {self.task} of {self.y_name} on {len(self.x_names)} inputs, "
            f"{len(self):,} rows)"
        )

    def test_rows(self, seed: int, split: int) -> np.ndarray:
        """Draw the numbers of a split's test rows: a tenth of all, and at most 10,000."""
        num = min(-(-len(self) // 10), _MOST_TEST_ROWS)
        rng = np.random.default_rng((seed, split))
        return np.sort(rng.choice(len(self), num, replace=False))


def open_rows(
    rows: Rows,
    *,
    name: str = "rows",
    x_names: Sequence[str] | None = None,
    y_name: str = "y",
    source: str = "rows",
    classes: bool = False,
) -> RowSource:
    """Find the task of a source of inputs and targets.

    It is binary if the targets are stored as whole numbers, and are 0 and 1 only, as for files.
    One pass over the rows looks for others; it ends at the first.

    Args:
        rows: a source of two arrays, [N, D] and [N] or [N, 1].
        name: name of the data set.
        x_names: names of the inputs; None for x0, x1, ...
        y_name: name of the target.
        source: where the data come from, on one line.
        classes: whether the targets are classes 0 ... C-1, whatever their type.

    Raises:
        DataError: if these are not two such arrays, there are fewer than three rows, or the targets
            are no classes and have to be.
    """
    shapes = [a.shape[1:] for a in rows.first]
    if len(shapes) == 2 and shapes[1] == (1,):
        rows, shapes = rows.map(_with_single_target), [shapes[0], ()]
    if len(shapes) != 2 or len(shapes[0]) != 1 or shapes[1]:
        raise DataError(
            f"{name}: a row has arrays of shapes {[list(s) for s in shapes]}, wanted inputs, [D], "
            "and a target, [] or [1]; make them by Rows.map"
        )
    if len(rows) < MIN_ROWS:
        raise DataError(f"{name}: {len(rows)} rows, wanted at least {MIN_ROWS}; add rows")
    kinds = [a.dtype.kind for a in rows.first]
    if any(kind not in "biuf" for kind in kinds):
        raise DataError(
            f"{name}: a row has arrays of types {[str(a.dtype) for a in rows.first]}, wanted "
            "numbers; encode text and dates by Rows.map"
        )
    largest = None
    if classes or kinds[1] in "iub":
        largest = _largest_class(name, y_name, rows, _MOST_CLASSES if classes else 1)
    if classes and largest is None:
        raise DataError(
            f"{name}: {y_name!r} is a target of classes, and has other values than 0, 1, ..., "
            f"{_MOST_CLASSES}; number the classes from 0"
        )
    num = 0 if largest is None else max(2, largest + 1)
    dim = shapes[0][0]
    return RowSource(
        name,
        rows if largest is None else rows.map(_with_classes),
        "regression" if largest is None else "binary" if num == 2 else "multiclass",
        num,
        tuple(x_names) if x_names is not None else tuple(f"x{i}" for i in range(dim)),
        y_name,
        source,
    )


def open_folder(
    path: str | os.PathLike[str],
    target: str | None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> RowSource:
    """Open a folder of .parquet files, which is read block by block.

    Args:
        path: the folder.
        target: the column to predict.
        drop: columns to leave out.
        categorical: the target, if its numbers are classes.

    Raises:
        DataError: if the files cannot be used; if `categorical` has an input, which would have to
            be encoded.
    """
    path = Path(os.path.expanduser(os.fspath(path)))
    names = parquet_columns(path)
    find_target(named(path), names, target)
    if unknown := [n for n in (*drop, *categorical) if n not in names]:
        raise DataError(
            f"{path}: there is no column {unknown[0]!r}; the columns are {quoted(names)}"
        )
    if target in drop:
        raise DataError(
            f"{path}: drop has {target!r}, which is the target, wanted each column in one place; "
            "leave it out of drop"
        )
    if encoded := [n for n in categorical if n != target]:
        raise DataError(
            f"{path}: categorical is {quoted(encoded)}, but inputs of a folder are read as "
            "numbers, block by block; encode them in the files, or give one .parquet file, which "
            "is read whole"
        )
    inputs = [n for n in names if n != target and n not in drop]
    rows = Rows.from_parquet(path, inputs=inputs, target=target)
    return open_rows(
        rows, name=path.name or str(path), x_names=inputs, y_name=str(target),
        source=f"folder {path}", classes=bool(categorical),
    )  # fmt: skip


def _largest_class(name: str, y_name: str, rows: Rows, most: int) -> int | None:
    """Return the largest target, or None if one is not among 0, 1, ..., `most`."""
    largest = 0
    for block in rows.blocks():
        y = np.asarray(block[1])
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise DataError(f"{name}: {y_name!r} misses values; leave these rows out")
        is_whole = y.dtype.kind != "f" or bool((y == np.floor(y)).all())
        if not is_whole or y.min() < 0 or y.max() > most:
            return None
        largest = max(largest, int(y.max()))
    return largest


def _with_classes(x: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    return x, y.astype(np.int32)


def _with_single_target(x: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    return x, y[:, 0]
