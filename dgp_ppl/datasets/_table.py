"""What the readers of files share: the table they hand back, its checks, and words for messages.

Everything that a data set can have wrong ends as a `DataError` of one line that says where it is,
what was got, what was wanted, and what to do.
"""

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dgp_ppl._errors import DataError

MIN_ROWS = 3  # two to train on, so that a spread exists, and one to test on
MIN_TRAIN_ROWS = 2
WHOLE_MAX = 2**53  # float64 holds every whole number up to here
FLOAT32_MAX = float(np.finfo(np.float32).max)

# Faults of values: what they are, and what to do.
TOO_LARGE = "beyond the range of float32 (3.4e38), in which fits run", "rescale the column"
TOO_LONG = (
    "a whole number beyond 2^53, of which float64 loses digits",
    "rescale the column, or leave it out if it is an identifier",
)
_NOT_FINITE = "missing or not finite (NaN, inf)", "drop these rows or fill the cells in"


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds, checked.

    Attributes:
        x: inputs, float64 [N, D].
        y: targets [N], float64 for regression, else the classes 0 ... C-1, int64.
        x_names: names of the D inputs.
        y_name: name of the target.
        task: "regression", "binary" or "multiclass".
        test_index: row numbers of each split's test rows; None if the file has none.
        shared_unit: whether all inputs are in one unit, as pixels are.
    """

    x: np.ndarray
    y: np.ndarray
    x_names: tuple[str, ...]
    y_name: str
    task: str
    test_index: tuple[np.ndarray, ...] | None = None
    shared_unit: bool = False


def quoted(names: Iterable[object], limit: int = 12) -> str:
    """Names for a message, quoted and on one line, cut after `limit` of them."""
    every = [shown(name) for name in names]
    rest = f", ... ({len(every)} in all)" if len(every) > limit else ""
    return ", ".join(every[:limit]) + rest


def shown(value: object, limit: int = 60) -> str:
    """A value as Python writes it, which is on one line, cut after `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def named(path: os.PathLike[str] | str) -> str:
    """A path or name for a message: whole, and on one line."""
    return repr(os.fspath(path))


def one_line(error: BaseException) -> str:
    """The message of an error of another library, on one line of at most 200 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def suggestion(name: str, options: Iterable[str]) -> str:
    """` (did you mean ...?)`, or nothing where no option is close; case does not matter."""
    by_lower: dict[str, str] = {}
    for option in options:
        by_lower.setdefault(option.lower(), option)
        by_lower.setdefault(option.lower().rsplit("/", 1)[-1], option)
    close = difflib.get_close_matches(name.lower(), by_lower, n=5, cutoff=0.7)
    found = list(dict.fromkeys(by_lower[key] for key in close))[:3]
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def check_names(where: str, names: Sequence[str]) -> None:
    """Raises `DataError` unless every column has a name of its own."""
    for position, name in enumerate(names):
        if not name:
            raise DataError(
                f"{where}: column {position + 1} of {len(names)} has no name; name it or leave it "
                "out (pandas writes its index as such a column: save with index=False)"
            )
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise DataError(
            f"{where}: column names must differ, and {quoted(repeated)} comes more than once; "
            "rename or leave out the repeats"
        )


def find_target(where: str, names: Sequence[str], target: str | None) -> int:
    """The position of the target column.

    Raises:
        DataError: no target was named, there is no such column, or no other column is left.
    """
    if target is None:
        raise DataError(
            f"{where}: say which column to predict (target=..., --target); "
            f"the columns are {quoted(names)}"
        )
    if target not in names:
        headless = " (the first line holds only numbers: is the header missing?)"
        hint = suggestion(target, names) or (headless if all(map(_is_number, names)) else "")
        raise DataError(
            f"{where}: no column {shown(target)}{hint}; the columns are {quoted(names)}"
        )
    if len(names) == 1:
        raise DataError(
            f"{where}: {shown(target)} is the only column, and at least one input column besides "
            "the target is wanted; add the inputs to the file"
        )
    return list(names).index(target)


def check_values(where: str, values: np.ndarray, names: Sequence[str]) -> None:
    """Raises `DataError` unless all values are finite and within float32's range.

    Args:
        where: the file or data set, for the message.
        values: [N, K], of any real type.
        names: names of the K columns.
    """
    _refuse(where, values, names, ~np.isfinite(values), *_NOT_FINITE)
    if values.dtype.kind in "iu":
        _refuse(where, values, names, (values > WHOLE_MAX) | (values < -WHOLE_MAX), *TOO_LONG)
    size = np.abs(values.astype(np.result_type(values, np.float64), copy=False))
    _refuse(where, values, names, size > FLOAT32_MAX, *TOO_LARGE)


def check_table(where: str, table: Table) -> Table:
    """Returns the table.

    Raises:
        DataError: it has fewer than three rows, no inputs, or a constant target.
    """
    rows = len(table.y)
    if table.x.shape[1] == 0:
        raise DataError(f"{where}: no input columns, and at least one is wanted; add the inputs")
    if rows < MIN_ROWS:
        raise DataError(
            f"{where}: {rows} row{'' if rows == 1 else 's'} of data, and at least {MIN_ROWS} are "
            "wanted (two to train on, one to test on); add rows"
        )
    if table.y.min() == table.y.max():
        raise DataError(
            f"{where}: the target {shown(table.y_name)} is {float(table.y[0]):g} in every row, so "
            "there is nothing to learn; choose another target or add rows that differ"
        )
    return table


def file_task(y: np.ndarray, whole: bool) -> str:
    """The task of a file's targets [N], which are finite.

    Returns:
        "binary" if they are stored as whole numbers or booleans, take the values 0 and 1, and no
        others; else "regression".
    """
    both = whole and np.array_equal(np.unique(y), (0, 1))
    return "binary" if both else "regression"


def as_targets(y: np.ndarray, task: str) -> np.ndarray:
    """Targets [N] in the type of a task."""
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
    """Raises `DataError` about the cells in which `bad` [N, K] is true, if there are any."""
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
