"""`Dataset`, and its splits into training and test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgp_ppl._checks import as_array, check_count, check_kind
from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import shown
from dgp_ppl.datasets._preprocessor import Preprocessor

_MIN_ROWS = 3
_NAMES = 8  # of inputs, in a repr


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with at least three rows; all values are finite and within float32's range.

    Attributes:
        name: the name or file stem that `load` was called with.
        x: inputs in the units of the source, float64 [N, D].
        y: targets [N]: float64 in the units of the source for regression, else the classes
            0 ... C-1 as int64.
        task: "regression", "binary" or "multiclass".
        test_index: row numbers of the test rows of each split that comes with the data; None
            without such splits.
        x_names: names of the D inputs.
        y_name: name of the target.
        source: where the data come from, on one line.
        shared_unit: whether all inputs have the same unit, as pixels do. `compare` then
            standardises all inputs with one location and scale.
        preprocessor: what made the inputs of a table; None if the source holds numbers alone.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    task: str
    test_index: tuple[np.ndarray, ...] | None
    x_names: tuple[str, ...]
    y_name: str
    source: str
    shared_unit: bool = False
    preprocessor: Preprocessor | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def num_classes(self) -> int:
        """Number of classes C; 0 for regression."""
        return 0 if self.task == "regression" else int(self.y.max()) + 1

    def __repr__(self) -> str:
        rows, columns = self.x.shape
        names = ", ".join(self.x_names[:_NAMES]) + ", ..." * (columns > _NAMES)
        splits = "" if self.test_index is None else f", {len(self.test_index)} splits"
        return (
            f"Dataset({self.name!r}: {self.task} of {self.y_name} on {columns} inputs ({names}), "
            f"{rows:,} rows{splits})"
        )


@dataclass(frozen=True)
class DatasetInfo:
    """An entry in the list of data sets that `names` returns."""

    name: str  # that `load` takes
    rows: int
    columns: int  # number D of inputs
    task: str  # "regression", "binary" or "multiclass"
    source: str  # where the data come from


def check_size(where: str, rows: int) -> None:
    """Raise `DataError` unless there are rows to train on, with a spread, and one to test on."""
    if rows < _MIN_ROWS:
        raise DataError(
            f"{where}: {rows} row{'s' * (rows != 1)} of data with a target, wanted at least "
            f"{_MIN_ROWS} (two for training, one for testing); add rows"
        )


def splits(
    data: Any, num_splits: int, seed: int, groups: Any = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split a data set into training and test rows.

    The splits that come with the data set are used if there are any. Otherwise split ``s``
    permutes the rows at random with the seed ``(seed, s)``, and 90 % of them (rounded down) are
    training rows.

    Args:
        data: the data set.
        num_splits: number of splits; the first ones are returned.
        seed: seed of the random splits, at least 0.
        groups: labels of the rows, [N] or [N, K], such as ``data.x``. Rows with the same label stay
            together: groups are permuted, and the last ones with a tenth of the rows at least are
            test rows.

    Returns:
        A pair (train_index, test_index) of int64 row numbers for each split. Every row is in
        exactly one of the two.

    Raises:
        DataError: if the data set comes with fewer splits, or with splits beside `groups`, or if
            `groups` leave less than two training rows.
        TypeError: if `num_splits` or `seed` is no integer.
        ValueError: if `num_splits` is below 1, or `seed` below 0.
    """
    check_count("splits", "num_splits", num_splits)
    check_count("splits", "seed", seed, 0)
    kind = type(data) if hasattr(data, "test_index") else Dataset
    check_kind("splits", "data", data, kind, "a Dataset, as datasets.load returns")
    rows = len(data.y)
    if groups is not None and (data.test_index is not None or len(groups) != rows):
        raise DataError(
            f"{shown(data.name)}: groups has {len(groups)} labels, wanted one for each of {rows} "
            "rows, of data without splits of their own"
        )
    if data.test_index is None:
        labels: Any = range(rows) if groups is None else groups
        labels = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
        sizes, tests = np.bincount(labels), []
        for s in range(num_splits):
            order = np.random.default_rng((seed, s)).permutation(len(sizes))
            held = order[np.cumsum(sizes[order]) > 9 * rows // 10]
            tests.append(np.flatnonzero(np.isin(labels, held)))
            if 2 * sizes.max() > rows or rows - len(tests[s]) < 2:
                raise DataError(
                    f"{shown(data.name)}: groups has one of {sizes.max()} of {rows} rows, wanted "
                    "groups with half of the rows at most"
                )
    elif num_splits > len(data.test_index):
        raise DataError(
            f"{shown(data.name)}: num_splits is {num_splits}, and the data set comes with "
            f"{len(data.test_index)} splits; wanted at most {len(data.test_index)}"
        )
    else:
        tests = list(data.test_index[:num_splits])
    return [(np.setdiff1d(np.arange(rows), test), test) for test in tests]


def repeated_rows(x: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Tell which held-out rows have the inputs of a training row.

    If they also have its target, a method that remembers rows predicts them well, and their errors
    say little of new rows.

    >>> import numpy as np
    >>> from dgp_ppl.datasets import repeated_rows
    >>> repeated_rows(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [3.0, 5.0]]))
    array([ True, False])

    Args:
        x: training inputs, finite numbers, [N, D]; compared as float64.
        x_test: held-out inputs, [N*, D].

    Returns:
        Booleans, [N*].

    Raises:
        TypeError: if an array is not of real numbers.
        ValueError: if an array does not have two axes, or the numbers of columns differ.
    """
    given = {"x": x, "x_test": x_test}
    x, x_test = (np.asarray(as_array("repeated_rows", n, a), np.float64) for n, a in given.items())
    if x.ndim != 2 or x_test.ndim != 2 or x.shape[1] != x_test.shape[1]:
        raise ValueError(
            f"repeated_rows: x_test has shape {x_test.shape} and x {x.shape}, wanted [N*, D] and "
            "[N, D] with the same number of columns D"
        )
    x, x_test = x + 0.0, x_test + 0.0  # -0.0 + 0.0 is 0.0
    known = {row.tobytes() for row in x}
    return np.array([row.tobytes() in known for row in x_test], bool)
