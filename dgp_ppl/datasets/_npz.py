"""Reader of .npz files: inputs, targets and optional splits."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._dataset import MIN_ROWS, Dataset, DatasetInfo
from dgp_ppl.datasets._messages import named, quoted, shown, suggestion
from dgp_ppl.datasets.tables._cells import WHOLE_MAX
from dgp_ppl.datasets.tables._kinds import FLOAT32_MAX

__all__ = ["DEFAULT_SPLITS", "describe_npz", "read_npz"]

DEFAULT_SPLITS = "test_index"
"""Array of a .npz file that holds the test rows of each split."""

_MIN_TRAIN_ROWS = 2

# The arrays of a file of images; its test rows are its only split.
_IMAGES = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path, name: str, split_key: str) -> Dataset:
    """Read ``X``, ``y`` and splits, or the parts of a file of images; see `load`."""
    where = named(path)
    with _open(path) as archive:
        is_images = set(_IMAGES) <= set(archive.files)
        if is_images:
            if split_key != DEFAULT_SPLITS:
                raise DataError(
                    f"{where}: split_key is {shown(split_key)}, but a file of images has one "
                    "split, its x_test and y_test; leave split_key out"
                )
            x, y, test_index = _read_images(archive, where)
        elif {"X", "y"} <= set(archive.files):
            x, y = _array(archive, "X", where), _array(archive, "y", where)
            test_index = _read_splits(archive, split_key, len(y) if y.ndim else 0, where)
        else:
            raise DataError(
                f"{where}: the file has {quoted(archive.files) or 'no arrays'}, wanted the arrays "
                "'X' [N, D] and 'y' [N]; save it with np.savez(path, X=..., y=...)"
            )
        if x.ndim != 2 or not x.shape[1]:
            raise DataError(f"{where}: 'X' has shape {x.shape}, wanted [N, D], D > 0; reshape it")
        if y.shape not in ((len(x),), (len(x), 1)):
            raise DataError(
                f"{where}: 'y' has shape {y.shape} and 'X' {x.shape}, wanted [N] or [N, 1] and "
                "[N, D]; save arrays that belong together, and one column of y per file"
            )
        x_names = _x_names(archive, x.shape[1])
    whole, y = y.dtype.kind != "f", y.reshape(-1)
    x = _checked(where, x, x_names)
    y = _checked(where, y[:, None], ("y",))[:, 0]
    if len(y) < MIN_ROWS or y.min() == y.max():
        raise DataError(
            f"{where}: {len(y)} rows of data and {len(np.unique(y))} different targets, wanted at "
            f"least {MIN_ROWS} rows (two for training, one for testing) and two targets; add rows"
        )
    task = _task(y, whole, is_images)
    return Dataset(
        name=name,
        x=x,
        y=y if task == "regression" else y.astype(np.int64),
        task=task,
        test_index=test_index,
        x_names=x_names,
        y_name="y",
        source=f"file {path}",
        shared_unit=is_images,
    )


def describe_npz(path: Path, name: str) -> DatasetInfo | None:
    """Return the entry of an .npz file in the list of data sets, without reading its inputs.

    Return None if the file cannot be read, or does not hold inputs and targets.
    """
    try:
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as arrays:
            is_images = set(_IMAGES) <= set(arrays.files)
            parts = [("x_train", "y_train"), ("x_test", "y_test")] if is_images else [("X", "y")]
            shapes, kinds = zip(*(_header(archive, x) for x, _ in parts), strict=True)
            y = np.concatenate([arrays[y] for _, y in parts]).reshape(-1)
        rows, columns = sum(s[0] for s in shapes), int(np.prod(shapes[0][1:]))
        are_numbers = all(kind in "fiub" for kind in (*kinds, y.dtype.kind))
        if len(y) != rows or not are_numbers or len(shapes[0]) == 1 or not columns:
            return None
        task = _task(y, y.dtype.kind != "f", is_images)
        return DatasetInfo(name, rows, columns, task, source=f"file {path}")
    except Exception:  # damaged files raise errors of many kinds
        return None


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and the kind of dtype of an array."""
    with archive.open(f"{name}.npy") as stream:
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    return shape, dtype.kind


def _task(y: np.ndarray, whole: bool, is_images: bool) -> str:
    """Return the task of targets: whole numbers 0 and 1 are classes, of images also 0 ... C-1.

    In a table more whole numbers may be counts.
    """
    values = np.unique(y)
    if not whole or not np.array_equal(values, np.arange(len(values))):
        return "regression"
    return "binary" if len(values) == 2 else "multiclass" if is_images else "regression"


def _checked(where: str, values: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return values as float64, [N, K], or raise `DataError` if some cannot be used."""
    limit = FLOAT32_MAX if values.dtype.kind == "f" else WHOLE_MAX - 1
    with np.errstate(over="ignore"):
        found = values.astype(np.float64)
    bad = ~(np.abs(found) <= limit)
    if not bad.any():
        return found
    row, column = (int(i) for i in np.argwhere(bad)[0])
    count = int(bad.sum())
    raise DataError(
        f"{where}: {count} value{'s' * (count > 1)} missing, infinite or beyond {limit:.2g}"
        f", first {values[row, column]} in column {shown(names[column])}, row {row} (from 0), "
        "wanted finite numbers that float32 or, if whole, float64 can hold; drop these rows, fill "
        "the cells in or rescale the column"
    )


def _read_images(archive: Any, where: str) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Read images: inputs, a column per pixel; targets; and the row numbers of the test images."""
    x_train, y_train, x_test, y_test = (_array(archive, name, where) for name in _IMAGES)
    if x_train.ndim < 2 or x_train.shape[1:] != x_test.shape[1:] or y_train.ndim != y_test.ndim:
        raise DataError(
            f"{where}: 'x_train' has shape {x_train.shape}, 'x_test' {x_test.shape}, 'y_train' "
            f"{y_train.shape} and 'y_test' {y_test.shape}, wanted images of the same shape, with a "
            "class each; save images of one size"
        )
    x = np.concatenate([a.reshape(len(a), -1) for a in (x_train, x_test)])
    return x, np.concatenate([y_train, y_test]), (np.arange(len(x_train), len(x)),)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    where = named(path)
    with ExitStack() as stack:
        try:
            archive = np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
        except Exception as error:  # damaged files raise errors of many kinds
            raise DataError(
                f"{where}: not a readable .npz file ({one_line(error)}); write it again with "
                "np.savez"
            ) from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(
                f"{where}: a single array (.npy), wanted an .npz file with 'X' and 'y'; "
                "save it with np.savez(path, X=..., y=...)"
            )
        yield stack.enter_context(archive)


def _array(archive: Any, key: str, where: str) -> np.ndarray:
    """Read the array `key` of real numbers."""
    try:
        array = archive[key]
    except Exception as error:
        todo = "write the file again"
        if "allow_pickle" in str(error):
            todo = f"it holds Python objects, which could run code: save {key}.astype(float)"
        raise DataError(
            f"{where}: {shown(key)} cannot be read ({one_line(error)}); {todo}"
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        got = str(array.dtype) if isinstance(array, np.ndarray) else "raw bytes"
        raise DataError(
            f"{where}: {shown(key)} has dtype {got!r}, wanted real numbers; encode it as numbers"
        )
    return array


def _x_names(archive: Any, columns: int) -> tuple[str, ...]:
    """Return the names of the inputs in the file's array ``columns``, else x0, x1, ..."""
    try:
        names = archive["columns"]
        if names.dtype.kind == "U" and names.shape == (columns,):
            return tuple(map(str, names))
    except Exception:  # nothing else needs the names
        pass
    return tuple(f"x{i}" for i in range(columns))


def _read_splits(archive: Any, key: str, rows: int, where: str) -> tuple[np.ndarray, ...] | None:
    if key in archive.files:
        return _check_splits(_array(archive, key, where), key, rows, where)
    if key == DEFAULT_SPLITS:
        return None
    usable = []
    for name in archive.files:
        if name not in ("X", "y"):
            try:
                _check_splits(_array(archive, name, where), name, rows, where)
            except DataError:
                continue
            usable.append(name)
    hint = "and it has no splits; leave split_key out for random splits"
    if usable:
        hint = f"wanted one of its arrays of splits, {quoted(usable)}"
    raise DataError(f"{where}: no splits {shown(key)}{suggestion(key, usable)}, {hint}")


def _check_splits(array: np.ndarray, key: str, rows: int, where: str) -> tuple[np.ndarray, ...]:
    """Check an array of splits, and remove the padding."""
    name = shown(key)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or array.size == 0:
        raise DataError(
            f"{where}: {name} has shape {array.shape} and dtype {array.dtype}, wanted row numbers "
            "[splits, n] padded with -1, or [n] for one split; save whole numbers"
        )
    result = []
    for split, padded in enumerate(np.atleast_2d(array)):
        index = padded[padded != -1].astype(np.int64)
        fault = ""
        if index.size and (index.min() < 0 or index.max() >= rows):
            outside = index[(index < 0) | (index >= rows)][0]
            fault = f"row number {outside}, wanted 0 to {rows - 1}; number the rows from 0"
        elif len(np.unique(index)) != index.size:
            fault = "a row number is repeated, wanted each test row once; remove the repeats"
        elif not 1 <= index.size <= rows - _MIN_TRAIN_ROWS:
            fault = (
                f"{index.size} of {rows} rows are test rows, wanted at least one of them, and "
                f"{_MIN_TRAIN_ROWS} rows for training; leave the split out"
            )
        if fault:
            raise DataError(f"{where}: {name}, split {split} (from 0): {fault}")
        result.append(index)
    return tuple(result)
