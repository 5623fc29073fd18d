"""`table_writer`: a table that is written some rows at a time."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dgp_ppl._errors import DataError
from dgp_ppl._storage._archive import replacing

__all__ = ["table_writer"]


@contextlib.contextmanager
def table_writer(path: Path) -> Iterator[Callable[[Any], None]]:
    """Write a .csv or .parquet file some rows at a time; it appears at the end, in full or not.

    Args:
        path: the file.

    Yields:
        A function that writes the rows of a `pyarrow.Table`; all have the same columns.

    Raises:
        DataError: if the file cannot be written, or a column changes its type. An earlier file is
            then unchanged.
    """
    make = _parquet_writer if path.suffix.lower() == ".parquet" else _csv_writer
    try:
        with replacing(path) as draft, make(draft) as write:
            yield _of_one_type(path, write)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; choose another name"
        ) from error


def _of_one_type(path: Path, write: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a function that writes rows whose columns have the types of the first ones."""
    first: list[Any] = []

    def checked(table: Any) -> None:
        first.append(table.schema)
        del first[1:]
        for was, now in zip(first[0], table.schema, strict=True):
            if was.type != now.type:
                raise DataError(
                    f"{path} cannot be written: column {now.name!r} holds {now.type} in some rows "
                    f"and {was.type} in others; give it one type in all files"
                )
        write(table)

    return checked


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
