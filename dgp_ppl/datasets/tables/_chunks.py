"""`table_chunks`: the rows of a file, some at a time."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._csv import check_width, csv_header, csv_rows
from dgp_ppl.datasets._parquet import parquet_batches
from dgp_ppl.datasets._table import check_file, check_names, named
from dgp_ppl.datasets.tables._read import TABLE_SUFFIXES, from_arrow, from_texts
from dgp_ppl.datasets.tables._table import Table

__all__ = ["table_chunks"]


def table_chunks(
    path: str | os.PathLike[str], rows: int, *, texts: Collection[str] = ()
) -> Iterator[tuple[Any, Table]]:
    """Read a .csv or .parquet file some rows at a time, so that memory is bounded.

    Args:
        path: the file, as for `read_table`, or a folder of .parquet files, which are read in the
            order of their names.
        rows: the most rows of a chunk.
        texts: columns whose texts stay texts, as for `read_table`.

    Yields:
        The columns as the file has them, a `pyarrow.Table` (of texts for .csv files), and the
        `Table` of the same rows. There is at least one row.

    Raises:
        DataError: if the file cannot be read. Rows before the fault may have been yielded.
    """
    for file in _files(Path(os.path.expanduser(os.fspath(path)))):
        check_file(file, TABLE_SUFFIXES)
        start = 0
        chunks = _parquet_chunks if file.suffix.lower() == ".parquet" else _csv_chunks
        for raw, table in chunks(file, rows, texts):
            yield raw, dataclasses.replace(table, rows=np.arange(start, start + len(table)))
            start += len(table)


def _files(path: Path) -> list[Path]:
    """Return the files of a folder; a file is its own."""
    if not path.is_dir():
        return [path]
    if not (files := sorted(path.rglob("*.parquet"))):
        raise DataError(f"{path}: the folder has no .parquet files; name another one, or a file")
    return files


def _parquet_chunks(path: Path, rows: int, texts: Collection[str]) -> Iterator[tuple[Any, Table]]:
    where, empty = named(path), True
    for raw in parquet_batches(path, rows):
        if raw.num_rows:
            empty = False
            yield raw, from_arrow(where, raw, None, texts)
    if empty:
        raise DataError(f"{where}: no rows, wanted some; check that the file is complete")


def _csv_chunks(path: Path, rows: int, texts: Collection[str]) -> Iterator[tuple[Any, Table]]:
    import pyarrow as pa

    where = named(path)
    names = tuple(name.strip() for name in csv_header(path)[1])
    check_names(where, names)
    lines = islice(csv_rows(path), 1, None)
    while block := list(islice(lines, rows)):
        for line, row in block:
            check_width(where, line, row, len(names))
        cells = zip(*(row for _, row in block), strict=True)
        raw = {n: pa.array(column, pa.string()) for n, column in zip(names, cells, strict=True)}
        made = {name: from_texts(column, name in texts) for name, column in raw.items()}
        yield pa.table(raw), Table(where, made, np.arange(len(block)), path)
