"""`Table`, which all readers return, its checks, and helpers for error messages.

Every fault of a data set is raised as a `DataError`. Its message is one line with the place, what
was found, what was wanted, and what to do.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dgp_ppl._errors import DataError

__all__ = [
    "FILE_SUFFIXES",
    "FLOAT32_MAX",
    "MIN_ROWS",
    "MIN_TRAIN_ROWS",
    "TOO_LARGE",
    "TOO_LONG",
    "WHOLE_MAX",
    "Table",
    "as_targets",
    "check_file",
    "check_names",
    "check_table",
    "check_values",
    "file_task",
    "find_target",
    "named",
    "quoted",
    "shown",
    "suggestion",
    "table_from_columns",
]  # fmt: skip

MIN_ROWS = 3  # two to train on, so that a spread exists, and one to test on
MIN_TRAIN_ROWS = 2
WHOLE_MAX = 2**53  # float64 holds every whole number up to here
FILE_SUFFIXES = (".csv", ".parquet", ".npz")
FLOAT32_MAX = float(np.finfo(np.float32).max)

# Faults of values: a description, and what to do.
TOO_LARGE = "beyond the range of float32 (3.4e38), which fits use", "rescale the column"
TOO_LONG = (
    "a whole number beyond 2^53, where float64 loses digits",
    "rescale the column, or leave it out if it is an identifier",
)
_NOT_FINITE = "missing or not finite (NaN, inf)", "drop these rows or fill the cells in"


@dataclass(frozen=True, eq=False)
class Table:
    """The checked content of a file.

    Attributes:
        x: inputs, float64 [N, D].
        y: targets [N], float64 for regression, else the classes 0 ... C-1, int64.
        x_names: names of the D inputs.
        y_name: name of the target.
        task: "regression", "binary" or "multiclass".
        test_index: row numbers of each split's test rows; None without splits.
        shared_unit: whether all inputs have the same unit, as pixels do.
    """

    x: np.ndarray
    y: np.ndarray
    x_names: tuple[str, ...]
    y_name: str
    task: str
    test_index: tuple[np.ndarray, ...] | None = None
    shared_unit: bool = False


def quoted(names: Iterable[object], limit: int = 12) -> str:
    """Format names for a message: quoted, on one line, and at most `limit` of them."""
    texts = [shown(name) for name in names]
    rest = f", ... ({len(texts)} in all)" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + rest


def shown(value: object, limit: int = 60) -> str:
    """Format a value for a message: its `repr`, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def named(path: os.PathLike[str] | str) -> str:
    """Format a path or name for a message: in full and on one line."""
    return repr(os.fspath(path))


def suggestion(name: str, options: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the closest options, or an empty string.

    Case is ignored.
    """
    by_lower: dict[str, str] = {}
    for option in options:
        by_lower.setdefault(option.lower(), option)
        by_lower.setdefault(option.lower().rsplit("/", 1)[-1], option)
    close = difflib.get_close_matches(name.lower(), by_lower, n=5, cutoff=0.7)
    similar = list(dict.fromkeys(by_lower[key] for key in close))[:3]
    return f" (did you mean {' or '.join(map(repr, similar))}?)" if similar else ""


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Raise `DataError` unless there is such a file, with one of the suffixes."""
    where = named(path)
    wanted = " or ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))
    if not os.path.exists(path):
        raise DataError(f"{where}: no such file{_similar_file(path, suffixes)}; check the path")
    if not os.path.isfile(path):
        raise DataError(f"{where}: not a file, wanted a {wanted} file; name one")
    if path.suffix.lower() not in suffixes:
        raise DataError(f"{where}: ends in {shown(path.suffix)}, wanted {wanted}; save it as one")


def _similar_file(path: Path, suffixes: Sequence[str]) -> str:
    """Suggest a file of the same folder with a similar name."""
    try:
        neighbours = os.listdir(path.parent)
    except (OSError, ValueError):
        return ""
    return suggestion(path.name, [file for file in neighbours if file.endswith(tuple(suffixes))])


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise `DataError` unless every column has a different, non-empty name."""
    for position, name in enumerate(names):
        if not name:
            raise DataError(
                f"{where}: column {position + 1} of {len(names)} has no name; name it or leave it "
                "out (pandas writes its index as such a column: save with index=False)"
            )
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise DataError(
            f"{where}: {quoted(repeated)} names more than one column, wanted different names; "
            "rename or leave out the repeats"
        )


def find_target(where: str, names: Sequence[str], target: str | None) -> int:
    """Return the position of the target column.

    Raises:
        DataError: if `target` is None or not a column, or if no other column is left.
    """
    if target is None:
        raise DataError(
            f"{where}: no target, wanted the column to predict (target=..., --target); "
            f"the columns are {quoted(names)}"
        )
    if target not in names:
        headless = " (the first line holds only numbers: is the header missing?)"
        hint = suggestion(str(target), names) or (headless if all(map(_is_number, names)) else "")
        raise DataError(
            f"{where}: no column {shown(target)}{hint}; the columns are {quoted(names)}"
        )
    if len(names) == 1:
        raise DataError(
            f"{where}: {shown(target)} is the only column, wanted at least one input column "
            "besides the target; add the inputs to the file"
        )
    return list(names).index(target)


def check_values(where: str, values: np.ndarray, names: Sequence[str]) -> None:
    """Raise `DataError` unless all values are finite and within float32's range.

    Args:
        where: the file or data set, for the message.
        values: values of any real type, [N, K].
        names: names of the K columns.
    """
    _refuse(where, values, names, ~np.isfinite(values), *_NOT_FINITE)
    if values.dtype.kind in "iu":
        _refuse(where, values, names, (values > WHOLE_MAX) | (values < -WHOLE_MAX), *TOO_LONG)
    size = np.abs(values.astype(np.result_type(values, np.float64), copy=False))
    _refuse(where, values, names, size > FLOAT32_MAX, *TOO_LARGE)


def check_table(where: str, table: Table) -> Table:
    """Return the table unchanged.

    Raises:
        DataError: if it has fewer than three rows, no inputs, or a constant target.
    """
    rows = len(table.y)
    if table.x.shape[1] == 0:
        raise DataError(f"{where}: no input columns, wanted at least one; add the inputs")
    if rows < MIN_ROWS:
        raise DataError(
            f"{where}: {rows} row{'' if rows == 1 else 's'} of data, wanted at least {MIN_ROWS} "
            "(two for training, one for testing); add rows"
        )
    if table.y.min() == table.y.max():
        raise DataError(
            f"{where}: the target {shown(table.y_name)} is {float(table.y[0]):g} in every row, "
            "wanted different values; choose another target or add rows that differ"
        )
    return table


def table_from_columns(
    where: str, values: np.ndarray, names: tuple[str, ...], target: int, whole: bool
) -> Table:
    """Make a checked table from the columns of a file.

    Args:
        where: the file, for messages.
        values: all columns, float64 [N, K].
        names: their names.
        target: position of the target column.
        whole: whether the target is stored as whole numbers.

    Raises:
        DataError: if `check_table` does.
    """
    task = file_task(values[:, target], whole)
    return check_table(
        where,
        Table(
            x=np.delete(values, target, axis=1),
            y=as_targets(values[:, target], task),
            x_names=names[:target] + names[target + 1 :],
            y_name=names[target],
            task=task,
        ),
    )


def file_task(y: np.ndarray, whole: bool) -> str:
    """Return the task of a file: "binary" or "regression".

    Args:
        y: finite targets, [N].
        whole: whether they are stored as whole numbers or booleans. The task is binary if they
            are, and take the values 0 and 1 only.
    """
    is_binary = whole and np.array_equal(np.unique(y), (0, 1))
    return "binary" if is_binary else "regression"


def as_targets(y: np.ndarray, task: str) -> np.ndarray:
    """Convert targets [N] to the dtype of a task."""
    return y.astype(np.float64 if task == "regression" else np.int64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse(
    where: str, values: np.ndarray, names: Sequence[str], bad: np.ndarray, what: str, todo: str
) -> None:
    """Raise `DataError` about the cells marked by `bad`, [N, K], if there are any."""
    if not bad.any():
        return
    row, column = (int(i) for i in np.argwhere(bad)[0])
    count = int(bad.sum())
    affected = int(bad.any(axis=0).sum())
    cells = f"{count} value{'' if count == 1 else 's'}"
    columns = f" in {affected} columns" if affected > 1 else ""
    raise DataError(
        f"{where}: {cells}{columns} {what}, first {values[row, column]} in column "
        f"{shown(names[column])}, row {row} (from 0), wanted finite numbers; {todo}"
    )
