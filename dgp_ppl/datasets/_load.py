"""`load` and `names`: data sets by name or from a file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import ArrowFrame
from dgp_ppl.datasets._bundled import BUNDLED, load_bundled
from dgp_ppl.datasets._columns import fit_target, infer
from dgp_ppl.datasets._dataset import Dataset, DatasetInfo, check_size
from dgp_ppl.datasets._messages import OF_NEW_ROWS, check_file, named, quoted, shown, suggestion
from dgp_ppl.datasets._npz import DEFAULT_SPLITS, read_npz
from dgp_ppl.datasets._preprocessor import Preprocessor, find_target
from dgp_ppl.datasets._read import TABLE_SUFFIXES, Table, read_table

_FILE_SUFFIXES = (*TABLE_SUFFIXES, ".npz")
_FOLDER_VARIABLE = "DGP_PPL_DATA"


def load(
    name_or_path: str | os.PathLike[str] | ArrowFrame,
    *,
    target: str | None = None,
    split_key: str = DEFAULT_SPLITS,
) -> Dataset:
    """Load a data set of numbers by name, from a file or from a data frame.

    `load` is strict: it refuses inputs that are text or dates, and missing cells. A `Preprocessor`
    turns a table with these into numbers, and so does `compare`.

    A `Path`, or a string that ends in .csv, .parquet or .npz, is a file. Any other string is a
    bundled name, or else a name in the folder given by the environment variable DGP_PPL_DATA:
    ``uci/energy`` is the file ``uci/energy.npz`` in that folder. Frames of OpenML come from
    scikit-learn: ``fetch_openml("boston", version=1).frame``.

    Files have these forms:

    - .csv (UTF-8, commas, a header), .parquet and data frames: `target` is the column to predict,
      and all other columns are inputs, but not a pandas index.
    - .npz: ``X`` [N, D] and ``y`` [N] or [N, 1]. Optional arrays are the splits, ``test_index``
      [splits, n], padded with -1, and the names of the inputs, ``columns``.
    - .npz of images: ``x_train`` [N, ...], ``y_train`` [N], ``x_test`` and ``y_test``.

    The task of a file is binary if the target is stored as whole numbers (in .npz also booleans)
    and takes the values 0 and 1 only. Targets of text are classes, and so are targets of images
    that are 0 ... C-1. All other files are regression.

    The bundled ``step`` has 100 sorted points with x uniform on [-1, 1] and y = [x > 0] plus noise
    of standard deviation 0.05; ``heteroscedastic`` has 200, with y = sin(2 pi x) plus noise whose
    standard deviation rises linearly from 0.05 to 0.5. ``robot_arm`` has 2,000 poses of an arm of
    length 1 whose six links shorten from 0.22 to 0.11: x are the joints' angles, uniform on [-1.5,
    1.5] radians, and y is the distance from the hand to the point (0.3, 0.2), plus noise of 5 % of
    its standard deviation. ``diabetes`` is in its original units.

    >>> from dgp_ppl import datasets
    >>> data = datasets.load("step")
    >>> data.x.shape, data.task
    ((100, 1), 'regression')

    Args:
        name_or_path: the name or the file; or a frame of pandas, polars or another library with
            Arrow's PyCapsule interface.
        target: the column to predict, for files with columns and frames.
        split_key: the name of the array of splits in an .npz file.

    Returns:
        The data set.

    Raises:
        DataError: if there is no such data set, or it cannot be used. The message is one line
            with the reason and the next thing to try.
    """
    found = open_data(name_or_path, target, split_key)
    return found if isinstance(found, Dataset) else strict_dataset(*found)


def open_data(
    data: Any, target: str | None, split_key: str, texts: Collection[str] = ()
) -> Dataset | tuple[str, Table, str | None, str]:
    """Open what `load` takes, or a `Table`.

    Return a data set of numbers; or a table, after its name and before the target and its origin.
    `texts` as for `read_table`.
    """
    if not isinstance(data, str | os.PathLike):
        table = read_table(data, texts=texts)
        refuse_split_key(table.where, split_key)
        return "table", table, target, table.where
    text = os.fspath(data)
    path, where = Path(os.path.expanduser(text)), named(text)
    is_name = isinstance(data, str)
    if text.lower().endswith(TABLE_SUFFIXES):
        refuse_split_key(where, split_key)
        return path.stem, read_table(path, texts=texts), target, f"file {path}"
    if not is_name or text.lower().endswith(_FILE_SUFFIXES):
        check_file(path, _FILE_SUFFIXES)
        return _load_npz(path, path.stem, target, split_key)
    if text in BUNDLED:
        refuse_split_key(where, split_key)
        found = load_bundled(text)
        if target not in (None, found.y_name):
            raise DataError(
                f"{where}: target is {shown(target)}, wanted {found.y_name!r}, the only target of "
                "this data set; leave the target out"
            )
        return found
    if file := _file_of_folder(text):
        return _load_npz(file, text, target, split_key)
    raise DataError(_unknown_name(text))


def _file_of_folder(text: str) -> Path | None:
    """Return the .npz file of this name in the folder DGP_PPL_DATA, if there is one."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    path = Path(folder or "", f"{text}.npz")
    return path if folder and text and os.path.isfile(path) else None


def _load_npz(path: Path, name: str, target: str | None, split_key: str) -> Dataset:
    if target not in (None, "y"):
        raise DataError(
            f"{named(path)}: target is {shown(target)}, but the target of an .npz file is its "
            "array 'y'; leave the target out"
        )
    table, test_index, are_images = read_npz(path, split_key)
    found = strict_dataset(name, table, "y", f"file {path}")
    found = replace(found, test_index=test_index, shared_unit=are_images)
    # Whole numbers may be counts, but those of images are classes.
    values = np.unique(found.y)
    if are_images and table.columns["y"].whole and np.array_equal(values, range(len(values))):
        task = "binary" if len(values) == 2 else "multiclass"
        found = replace(found, task=task, y=found.y.astype(np.int64))
    return found


def strict_dataset(name: str, table: Table, target: str | None, source: str) -> Dataset:
    """Make a data set of a table whose inputs are finite numbers, and which has all targets."""
    target = find_target(table.where, table.names, target)
    inputs = tuple(n for n in table.names if n != target)
    for n in inputs:
        if table.columns[n].declared:
            raise DataError(
                f"{table.where}: column {shown(n)} holds categories or booleans, wanted numbers; "
                "encode it as numbers, leave it out, or read it with `Preprocessor`"
            )
    x = Preprocessor.of_numbers(inputs).inputs(table)
    goal = fit_target(table, target, categorical=False, todo=OF_NEW_ROWS)
    if doubt := infer(table, target)[1]:
        warnings.warn(f"{table.where}: {doubt}", stacklevel=3)
    y, _ = goal.read(table, complete=True)
    check_size(table.where, len(y))
    return Dataset(name, x, y, goal.task, None, inputs, target, source)


def is_folder(text: str) -> bool:
    """Return whether this is a folder, and not the name of a data set."""
    is_name = text in BUNDLED or _file_of_folder(text) is not None
    return not is_name and os.path.isdir(os.path.expanduser(text))


def names() -> list[DatasetInfo]:
    """List the bundled data sets: `load` takes their names without a network or a file."""
    return list(BUNDLED.values())


def named_files() -> list[str]:
    """List the names of the .npz files under the folder DGP_PPL_DATA, sorted."""
    folder = Path(os.environ.get(_FOLDER_VARIABLE) or os.devnull)
    files = (path for path in folder.rglob("*.npz") if path.is_file())
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in files)


def _unknown_name(text: str) -> str:
    if os.path.exists(text):
        kind = "a folder" if os.path.isdir(text) else "a file of another kind"
        return (
            f"{named(text)}: {kind}, wanted a .csv, .parquet or .npz file; name one, or read a "
            "folder of .parquet files block by block: dgp.Rows.from_parquet"
        )
    known, folder, state = [*BUNDLED, *named_files()], os.environ.get(_FOLDER_VARIABLE), "not set"
    if folder:
        fault = f"has no {shown(text + '.npz')}" if os.path.isdir(folder) else "is not a folder"
        state = f"{named(folder)}, which {fault}"
    return (
        f"no data set {shown(text)}{suggestion(text, known)}; bundled are {quoted(BUNDLED)}; "
        f"{_FOLDER_VARIABLE} is {state}: set it to a folder of .npz files, or give a .csv, "
        ".parquet or .npz file"
    )


def refuse_split_key(where: str, split_key: str) -> None:
    """Raise `DataError` if splits are asked for by name, which only .npz files have."""
    if split_key != DEFAULT_SPLITS:
        raise DataError(
            f"{where}: split_key is {shown(split_key)}, but only .npz files have named splits; "
            "leave it out for random splits"
        )
