"""Files that commands write: checks before the work, and tables written some rows at a time."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dgp_ppl._errors import DataError
from dgp_ppl._storage import replacing

__all__ = ["check_output", "table_writer"]


def check_output(
    path: Path, overwrite: bool, suffixes: Sequence[str], inputs: Sequence[Path | str] = ()
) -> None:
    """Raise `DataError` unless a file can be written, before any work is done.

    Args:
        path: the file.
        overwrite: whether an earlier file may be replaced.
        suffixes: how its name may end.
        inputs: files that are read, which must not be replaced.
    """
    if path.suffix.lower() not in suffixes:
        raise DataError(f"{path} ends in {path.suffix!r}, wanted {' or '.join(suffixes)}")
    if path.is_dir():
        raise DataError(f"{path} is a folder, wanted a file; choose another name")
    if any(os.path.realpath(other) == os.path.realpath(path) for other in inputs):
        raise DataError(f"{path} is an input, wanted another file; choose another name")
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists; choose another name, or pass --overwrite")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise DataError(f"{path}: there is no folder {folder}; make it, or choose another name")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{path}: the folder {folder} cannot be written to; choose another name")


@contextlib.contextmanager
def table_writer(path: Path) -> Iterator[Callable[[Any], None]]:
    """Write a .csv or .parquet file some rows at a time; it appears at the end, in full or not.

    Args:
        path: the file.

    Yields:
        A function that writes the rows of a `pyarrow.Table`; all have the same columns.

    Raises:
        DataError: if the file cannot be written. An earlier file is then unchanged.
    """
    make = _parquet_writer if path.suffix.lower() == ".parquet" else _csv_writer
    try:
        with replacing(path) as draft, make(draft) as write:
            yield write
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; choose another name"
        ) from error


@contextlib.contextmanager
def _csv_writer(path: Path) -> Iterator[Callable[[Any], None]]:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")

        def write(table: Any) -> None:
            if not stream.tell():
                writer.writerow(table.column_names)
            writer.writerows(zip(*(c.to_pylist() for c in table.columns), strict=True))

        yield write


@contextlib.contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[Any], None]]:
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        writers: list[Any] = []

        def write(table: Any) -> None:
            if not writers:
                writers.append(stack.enter_context(pq.ParquetWriter(path, table.schema)))
            writers[0].write_table(table)

        yield write
