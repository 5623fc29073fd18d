"""Reader of .npz files: inputs, targets and optional splits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._messages import (
    TOO_LONG,
    WHOLE_MAX,
    bad_cell,
    named,
    quoted,
    shown,
    suggestion,
)
from dgp_ppl.datasets._read import Column, Table
from dgp_ppl.datasets.rows._readers import first_bad

DEFAULT_SPLITS = "test_index"
"""Array of a .npz file that holds the test rows of each split."""

_MIN_TRAIN_ROWS = 2

# The arrays of a file of images; its test rows are its only split.
_IMAGES = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path, split_key: str) -> tuple[Table, tuple[np.ndarray, ...] | None, bool]:
    """Read a table with ``y``, the test rows of each split, and whether the rows are images."""
    where = named(path)
    with _open(path) as archive:
        are_images = set(_IMAGES) <= set(archive.files)
        if not are_images and not {"X", "y"} <= set(archive.files):
            raise DataError(
                f"{where}: the file has {quoted(archive.files) or 'no arrays'}, wanted the arrays "
                "'X' [N, D] and 'y' [N]; save it with np.savez(path, X=..., y=...)"
            )
        arrays = [_array(archive, name, where) for name in (_IMAGES if are_images else "Xy")]
        x, y, *test = _joined(where, *arrays) if are_images else arrays
        test_index = tuple(test)
        if not are_images or split_key != DEFAULT_SPLITS:
            test_index = _read_splits(archive, split_key, len(y) if y.ndim else 0, where)
        if x.ndim != 2 or not x.shape[1] or y.shape not in ((len(x),), (len(x), 1)):
            raise DataError(
                f"{where}: 'X' has shape {x.shape} and 'y' {y.shape}, wanted [N, D], D > 0, and "
                "[N] or [N, 1]; save arrays that belong together, and one column of y per file"
            )
        names = _x_names(archive, x.shape[1])
    whole = y.dtype.kind != "f"
    with np.errstate(over="ignore"):  # what float64 cannot hold is an error of the table
        x, y = x.astype(np.float64, order="F"), y.astype(np.float64).reshape(-1)
    columns = {name: Column("number", x[:, i]) for i, name in enumerate(names)}
    columns["y"] = Column("number", y, whole=whole)
    return Table(where, columns, np.arange(len(y))), test_index, are_images


def _joined(
    where: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
) -> list[np.ndarray]:
    """Join images: inputs, a column per pixel; targets; and the row numbers of the test images."""
    if x.ndim < 2 or x.shape[1:] != x_test.shape[1:] or y.ndim != y_test.ndim:
        shapes = [a.shape for a in (x, y, x_test, y_test)]
        raise DataError(
            f"{where}: {quoted(_IMAGES)} have shapes {shapes}, wanted images of the same shape, "
            "with a class each; save images of one size"
        )
    pixels = np.concatenate([a.reshape(len(a), -1) for a in (x, x_test)])
    return [pixels, np.concatenate([y, y_test]), np.arange(len(x), len(pixels))]


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
    name = f"{where}: {shown(key)}"
    try:
        array = archive[key]
    except Exception as error:
        todo = "write the file again"
        if "allow_pickle" in str(error):
            todo = f"it holds Python objects, which could run code: save {key}.astype(float)"
        raise DataError(f"{name} cannot be read ({one_line(error)}); {todo}") from error
    kind = str(getattr(array, "dtype", "raw bytes"))
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise DataError(f"{name} has dtype {kind!r}, wanted real numbers; encode it as numbers")
    if array.dtype.kind in "iu" and (at := first_bad(array, WHOLE_MAX - 1, may_miss=False)):
        raise bad_cell(name, array[at], f"row {at[0]} (from 0)", TOO_LONG)
    return array


def _x_names(archive: Any, columns: int) -> tuple[str, ...]:
    """Return the names in the file's ``columns``, else x0, x1, ...; repeated ones get a number."""
    found = [f"x{i}" for i in range(columns)]
    with suppress(Exception):  # nothing else needs the names
        names = archive["columns"]
        if names.dtype.kind == "U" and names.shape == (columns,):
            found = names.tolist()
    taken = {"y": None}
    for i, name in enumerate(found):
        while name in taken:
            name += f"_{i}"
        taken[name] = None
    return tuple(taken)[1:]


def _read_splits(archive: Any, key: str, rows: int, where: str) -> tuple[np.ndarray, ...] | None:
    """Read the test rows of each split, without the padding; None if there are no splits."""
    if key not in archive.files and key == DEFAULT_SPLITS:
        return None
    name = shown(key)
    if key not in archive.files:
        others = [name for name in archive.files if name not in ("X", "y", "columns")]
        hint = "and it has no splits; leave split_key out for random splits"
        if others:
            hint = f"wanted one of its other arrays, {quoted(others)}"
        raise DataError(f"{where}: no splits {name}{suggestion(key, others)}, {hint}")
    array, result = _array(archive, key, where), []
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or array.size == 0:
        raise DataError(
            f"{where}: {name} has shape {array.shape} and dtype {array.dtype}, wanted row numbers "
            "[splits, n] padded with -1, or [n] for one split; save whole numbers"
        )
    for split, padded in enumerate(np.atleast_2d(array)):
        index = padded[padded != -1].astype(np.int64)
        are_rows = bool(((index >= 0) & (index < rows)).all()) and len({*index}) == len(index)
        if not are_rows or not 1 <= len(index) <= rows - _MIN_TRAIN_ROWS:
            raise DataError(
                f"{where}: {name}, split {split} (from 0) has the {len(index)} row numbers "
                f"{quoted(index.tolist(), 6)}, wanted different numbers of test rows, from 0 to "
                f"{rows - 1}, and {_MIN_TRAIN_ROWS} other rows for training; correct the split"
            )
        result.append(index)
    return tuple(result)
