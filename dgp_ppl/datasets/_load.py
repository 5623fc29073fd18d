"""`load` and `names`: data sets by name or from a file."""

from __future__ import annotations

import os
from pathlib import Path

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._bundled import BUNDLED, load_bundled
from dgp_ppl.datasets._csv import read_csv
from dgp_ppl.datasets._dataset import Dataset, DatasetInfo
from dgp_ppl.datasets._frame import ArrowFrame, arrow_columns, frame_name
from dgp_ppl.datasets._npz import DEFAULT_SPLITS, peek_npz, read_npz
from dgp_ppl.datasets._openml import PREFIX, fetch
from dgp_ppl.datasets._parquet import read_parquet, table_from_arrow
from dgp_ppl.datasets._table import (
    FILE_SUFFIXES,
    Table,
    check_file,
    named,
    quoted,
    shown,
    suggestion,
)

__all__ = ["is_folder", "load", "names", "refuse_split_key"]

_FOLDER_VARIABLE = "DGP_PPL_DATA"


def load(
    name_or_path: str | os.PathLike[str] | ArrowFrame,
    *,
    target: str | None = None,
    split_key: str = DEFAULT_SPLITS,
) -> Dataset:
    """Load a data set of numbers by name, from a file or from a data frame.

    `load` is strict: it refuses text, dates and missing cells. A `Preprocessor` turns a table with
    these into numbers, and so does `compare`.

    A `Path`, or a string that ends in .csv, .parquet or .npz, is a file. Any other string is a
    bundled name, a name at OpenML (``openml:NAME``, ``openml:NAME:VERSION`` or ``openml:ID``), or
    a name in the folder given by the environment variable DGP_PPL_DATA: ``uci/energy`` is the file
    ``uci/energy.npz`` in that folder. They are tried in this order.

    Files have these forms:

    - .csv (UTF-8, commas, a header), .parquet and data frames: `target` is the column to predict,
      and all other columns are inputs, except a pandas index.
    - .npz: ``X`` [N, D] and ``y`` [N] or [N, 1]. Optional arrays are the splits, ``test_index``
      [splits, n], padded with -1, and the names of the inputs, ``columns``.
    - .npz of images: ``x_train`` [N, ...], ``y_train`` [N], ``x_test`` and ``y_test``.

    The task of a file is binary if the target is stored as whole numbers (in .npz also booleans)
    and takes the values 0 and 1 only. Images are classified if their targets are 0 ... C-1. All
    other files are regression.

    The bundled data set ``step`` has 100 points with x uniform on [-1, 1] and y = [x > 0] plus
    noise of standard deviation 0.05. ``heteroscedastic`` has 200 points with x uniform on [-1, 1]
    and y = sin(2 pi x) plus noise whose standard deviation rises linearly from 0.05 to 0.5. Both
    are sorted by x. ``robot_arm`` has 2,000 poses of a planar arm of length 1 whose six links
    shorten from 0.22 to 0.11: x are the angles of its joints, uniform on [-1.5, 1.5] radians, and y
    is the distance from its hand to the point (0.3, 0.2), plus noise of 5 % of its standard
    deviation. They are the same at every call. ``diabetes`` is in its original units.

    >>> from dgp_ppl import datasets
    >>> data = datasets.load("step")
    >>> data.x.shape, data.task
    ((100, 1), 'regression')

    Args:
        name_or_path: the name or the file; or a frame of pandas, polars or another library with
            Arrow's PyCapsule interface.
        target: the column to predict, for files with columns; for OpenML it replaces the default
            target.
        split_key: the name of the array of splits in an .npz file.

    Returns:
        The data set.

    Raises:
        DataError: if there is no such data set, or it cannot be used. The message is one line
            with the reason and the next thing to try.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        where = frame_name(name_or_path)
        refuse_split_key(where, split_key)
        table = table_from_arrow(where, arrow_columns(name_or_path), target)
        return _from_table("table", table, where)
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.lower().endswith(FILE_SUFFIXES):
        path = Path(os.path.expanduser(text))
        return _load_file(path, path.stem, target, split_key)
    where = named(text)
    if text in BUNDLED:
        refuse_split_key(where, split_key)
        data = load_bundled(text)
        if target not in (None, data.y_name):
            raise DataError(
                f"{where}: target is {shown(target)}, wanted {data.y_name!r}, the only target of "
                "this data set; leave the target out"
            )
        return data
    if text.startswith(PREFIX):
        refuse_split_key(where, split_key)
        return _from_table(text, *fetch(text, target))
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder and text and os.path.isfile(os.path.join(folder, f"{text}.npz")):
        return _load_file(Path(folder, f"{text}.npz"), text, target, split_key)
    if os.path.exists(text):
        if os.path.isdir(text):
            raise DataError(
                f"{where}: a folder, wanted a .csv, .parquet or .npz file; name one, or read a "
                "folder of .parquet files block by block: dgp.Rows.from_parquet"
            )
        raise DataError(
            f"{where}: a file of another kind, wanted a .csv, .parquet or .npz file; name one"
        )
    raise DataError(_unknown_name(text, folder))


def is_folder(text: str) -> bool:
    """Return whether this is a folder, and not the name of a data set."""
    named_files = os.environ.get(_FOLDER_VARIABLE)
    if text in BUNDLED or (named_files and os.path.isfile(Path(named_files, f"{text}.npz"))):
        return False
    return os.path.isdir(os.path.expanduser(text))


def names() -> list[DatasetInfo]:
    """List the data sets that can be loaded by name without a network.

    These are the bundled data sets, then the .npz files under the folder DGP_PPL_DATA, sorted by
    name. Only the headers of the files are read, and targets of whole numbers.

    Raises:
        DataError: if DGP_PPL_DATA is set and is not a folder.
    """
    result = list(BUNDLED.values())
    folder = os.environ.get(_FOLDER_VARIABLE)
    if not folder:
        return result
    if not os.path.isdir(folder):
        raise DataError(
            f"{_FOLDER_VARIABLE}: {named(folder)} is not a folder; set it to a folder of .npz "
            "files, or unset it"
        )
    for name, path in sorted(_npz_files(Path(folder)).items()):
        header = peek_npz(path)
        if header is not None and name not in BUNDLED:
            result.append(DatasetInfo(name, *header, source=f"file {path}"))
    return result


def _npz_files(folder: Path) -> dict[str, Path]:
    """Return the .npz files under a folder by name."""
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob("*.npz")
        if path.is_file()
    }


def _unknown_name(text: str, folder: str | None) -> str:
    """Return the error text for a name that is not known."""
    known = list(BUNDLED)
    if folder and os.path.isdir(folder):
        known += sorted(_npz_files(Path(folder)))
        state = f"{_FOLDER_VARIABLE} is {named(folder)}, which has no {shown(text + '.npz')}"
    elif folder:
        state = f"{_FOLDER_VARIABLE} is {named(folder)}, which is not a folder"
    else:
        state = f"{_FOLDER_VARIABLE} is not set"
    return (
        f"no data set {shown(text)}{suggestion(text, known)}; bundled are {quoted(BUNDLED)}; "
        f"{state}: set it to a folder of .npz files, or give a .csv, .parquet or .npz file, or "
        "openml:NAME"
    )


def refuse_split_key(where: str, split_key: str) -> None:
    """Raise `DataError` if splits are asked for by name, which only .npz files have."""
    if split_key != DEFAULT_SPLITS:
        raise DataError(
            f"{where}: split_key is {shown(split_key)}, but only .npz files have named splits; "
            "leave it out for random splits"
        )


def _load_file(path: Path, name: str, target: str | None, split_key: str) -> Dataset:
    where = named(path)
    check_file(path, FILE_SUFFIXES)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        if target not in (None, "y"):
            raise DataError(
                f"{where}: target is {shown(target)}, but the target of an .npz file is its array "
                "'y'; leave the target out"
            )
        table = read_npz(path, split_key)
    else:
        refuse_split_key(where, split_key)
        table = (read_csv if suffix == ".csv" else read_parquet)(path, target)
    return _from_table(name, table, f"file {path}")


def _from_table(name: str, table: Table, source: str) -> Dataset:
    return Dataset(
        name=name,
        x=table.x,
        y=table.y,
        task=table.task,
        test_index=table.test_index,
        x_names=table.x_names,
        y_name=table.y_name,
        source=source,
        shared_unit=table.shared_unit,
    )
