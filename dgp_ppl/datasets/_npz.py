"""Reader of .npz files: inputs, targets and optional splits."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._table import (
    MIN_TRAIN_ROWS,
    Table,
    as_targets,
    check_table,
    check_values,
    file_task,
    named,
    quoted,
    shown,
    suggestion,
)

__all__ = ["DEFAULT_SPLITS", "peek_npz", "read_npz"]

DEFAULT_SPLITS = "test_index"
"""Array of a .npz file that holds the test rows of each split."""

# The arrays of a file of images; its test rows are its only split.
_IMAGES = ("x_train", "y_train", "x_test", "y_test")

# The errors that NumPy and the standard library raise on damaged archives.
_FAULTS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    RuntimeError,
    MemoryError,
    OverflowError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def read_npz(path: Path, split_key: str) -> Table:
    """Read ``X``, ``y`` and the splits of an .npz file.

    A file of images has ``x_train`` [N, ...], ``y_train`` [N], ``x_test`` and ``y_test`` instead.
    The file's array ``columns`` names the inputs if it holds D strings; else they are x0, x1, ...

    Args:
        path: the file.
        split_key: the array with each split's test rows: whole numbers, [splits, n] padded with
            -1, or [n] for a single split. The default, ``test_index``, may be absent.

    Raises:
        DataError: if the file cannot be used.
    """
    where = named(path)
    with _open(path) as archive:
        arrays, images = archive.files, None
        if set(_IMAGES) <= set(arrays):
            if split_key != DEFAULT_SPLITS:
                raise DataError(
                    f"{where}: split_key is {shown(split_key)}, but a file of images has one "
                    "split, its x_test and y_test; leave split_key out"
                )
            x, y, images = _read_images(archive, where)
        elif "X" in arrays and "y" in arrays:
            x, y = _array(archive, "X", where), _array(archive, "y", where)
        else:
            raise DataError(
                f"{where}: the file has {quoted(arrays) or 'no arrays'}, wanted the arrays "
                "'X' [N, D] and 'y' [N]; save it with np.savez(path, X=..., y=...)"
            )
        if x.ndim != 2:
            todo = "reshape it with X[:, None]" if x.ndim == 1 else "reshape it with one row each"
            raise DataError(f"{where}: 'X' has shape {x.shape}, wanted [N, D]; {todo}")
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim == 2:
            raise DataError(
                f"{where}: 'y' has shape {y.shape}, wanted [N] or [N, 1], as several outputs "
                "are not supported; save one column of y per file"
            )
        if y.ndim != 1:
            raise DataError(f"{where}: 'y' has shape {y.shape}, wanted [N] or [N, 1]; reshape it")
        if len(x) != len(y):
            raise DataError(
                f"{where}: 'X' has {len(x)} rows and 'y' has {len(y)}, wanted the same number; "
                "save arrays that belong together"
            )
        x_names = _x_names(archive, x.shape[1])
        check_values(where, x, x_names)
        check_values(where, y[:, None], ("y",))
        task = file_task(y, whole=y.dtype.kind != "f") if images is None else _image_task(y)
        table = Table(
            x=x.astype(np.float64),
            y=as_targets(y, task),
            x_names=x_names,
            y_name="y",
            task=task,
            test_index=images or _read_splits(archive, split_key, len(y), where),
            shared_unit=images is not None,
        )
    return check_table(where, table)


def _read_images(archive: Any, where: str) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Read images: inputs, a column per pixel; targets; and the row numbers of the one split.

    Training rows come first, then test rows.
    """
    x_train, y_train, x_test, y_test = (_array(archive, name, where) for name in _IMAGES)
    if x_train.ndim < 2 or x_train.shape[1:] != x_test.shape[1:]:
        raise DataError(
            f"{where}: 'x_train' has shape {x_train.shape} and 'x_test' {x_test.shape}, wanted "
            "images of the same shape; save images of one size"
        )
    x = np.concatenate([a.reshape(len(a), -1) for a in (x_train, x_test)])
    try:
        y = np.concatenate([y_train, y_test])
    except ValueError as error:
        raise DataError(
            f"{where}: 'y_train' has shape {y_train.shape} and 'y_test' {y_test.shape}, wanted one "
            "class for each image in both"
        ) from error
    return x, y, (np.arange(len(x_train), len(x)),)


def _image_task(y: np.ndarray) -> str:
    """Return the task of images: whole-number targets 0 ... C-1 are classes.

    In a table such targets may be counts, so `file_task` does not treat them as classes.
    """
    values = np.unique(y)
    if y.dtype.kind not in "iub" or not np.array_equal(values, np.arange(len(values))):
        return "regression"
    return "binary" if len(values) == 2 else "multiclass"


def peek_npz(path: Path) -> tuple[int, int, str] | None:
    """Return the rows, columns and task of an .npz file without reading its inputs.

    Returns:
        None if the file cannot be read, or does not hold ``X`` [N, D] and ``y`` [N].
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if {f"{name}.npy" for name in _IMAGES} <= set(archive.namelist()):
                shapes = [_npy_header(archive, f"x_{part}.npy")[0] for part in ("train", "test")]
                with np.load(path, allow_pickle=False) as arrays:
                    task = _image_task(arrays["y_train"])
                return shapes[0][0] + shapes[1][0], int(np.prod(shapes[0][1:])), task
            x_shape, x_type = _npy_header(archive, "X.npy")
            y_shape, y_type = _npy_header(archive, "y.npy")
        if x_type.kind not in "fiub" or len(x_shape) != 2 or x_shape[1] == 0:
            return None
        if y_type.kind not in "fiub" or y_shape not in (x_shape[:1], (x_shape[0], 1)):
            return None
        task = "regression"
        if y_type.kind != "f":
            with np.load(path, allow_pickle=False) as arrays:
                task = file_task(arrays["y"], whole=True)
    except _FAULTS:
        return None
    return x_shape[0], x_shape[1], task


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    where = named(path)
    with ExitStack() as stack:
        try:
            archive = np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
        except _FAULTS as error:
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
    except _FAULTS as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{where}: {shown(key)} holds Python objects, which could run code when loaded, "
                f"wanted numbers; save it as numbers, {key}.astype(float)"
            ) from error
        raise DataError(
            f"{where}: {shown(key)} cannot be read ({one_line(error)}); write the file again"
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        got = shown(str(array.dtype)) if isinstance(array, np.ndarray) else "raw bytes"
        raise DataError(
            f"{where}: {shown(key)} has dtype {got}, wanted real numbers; encode it as numbers"
        )
    return array


def _x_names(archive: Any, columns: int) -> tuple[str, ...]:
    """Return the names of the inputs in the file's array ``columns``, else x0, x1, ..."""
    default = tuple(f"x{i}" for i in range(columns))
    if "columns" not in archive.files:
        return default
    try:
        names = archive["columns"]
    except _FAULTS:  # nothing else needs the names
        return default
    usable = isinstance(names, np.ndarray) and names.dtype.kind == "U" and names.shape == (columns,)
    return tuple(map(str, names)) if usable else default


def _npy_header(archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the shape and dtype of one array of an archive; raise one of `_FAULTS` on damage."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, dtype


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
    hint = (
        f"wanted one of its arrays of splits, {quoted(usable)}"
        if usable
        else "and it has no others; leave split_key out for random splits"
    )
    raise DataError(f"{where}: no splits {shown(key)}{suggestion(key, usable)}, {hint}")


def _check_splits(array: np.ndarray, key: str, rows: int, where: str) -> tuple[np.ndarray, ...]:
    """Check an array of splits, and remove the padding."""
    name = shown(key)
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{where}: {name} has dtype {array.dtype}, wanted row numbers; save whole numbers"
        )
    if array.ndim not in (1, 2) or array.size == 0:
        raise DataError(
            f"{where}: {name} has shape {array.shape}, wanted row numbers [splits, n] padded with "
            "-1, or [n] for one split; reshape it"
        )
    result = []
    for split, padded in enumerate(np.atleast_2d(array)):
        here = f"{where}: {name}, split {split} (from 0)"
        index = padded[padded != -1]
        outside = index[(index < 0) | (index >= rows)]
        if outside.size:
            raise DataError(
                f"{here}: row number {outside[0]}, wanted 0 to {rows - 1} as X has {rows} rows; "
                "number the rows from 0 and pad with -1"
            )
        index = index.astype(np.int64)
        unique, counts = np.unique(index, return_counts=True)
        if unique.size != index.size:
            raise DataError(
                f"{here}: row number {unique[counts > 1][0]} is repeated, wanted each test row "
                "once; remove the repeats"
            )
        if index.size == 0:
            raise DataError(f"{here}: no test rows, wanted at least one; leave the split out")
        if rows - index.size < MIN_TRAIN_ROWS:
            raise DataError(
                f"{here}: {index.size} of {rows} rows are test rows and {rows - index.size} remain "
                f"for training, wanted at least {MIN_TRAIN_ROWS}; list fewer test rows"
            )
        result.append(index)
    return tuple(result)
