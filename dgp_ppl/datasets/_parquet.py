"""Reader of .parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._table import (
    Table,
    check_names,
    check_values,
    find_target,
    named,
    shown,
    table_from_columns,
)
from dgp_ppl.datasets.rows import without_index

__all__ = [
    "parquet_batches", "parquet_columns", "read_parquet", "table_from_arrow",
]  # fmt: skip


def read_parquet(path: Path, target: str | None) -> Table:
    """Read a .parquet file: the column `target`, and all other columns as inputs.

    Columns may hold integers, floats or decimals. An index that pandas stored is not an input.

    Raises:
        DataError: if the file cannot be used.
    """
    return table_from_arrow(named(path), parquet_columns(path), target)


def parquet_columns(path: Path) -> Any:
    """Read all columns of a .parquet file as a `pyarrow.Table`.

    Raises:
        DataError: if the file cannot be read.
    """
    with _opened(path) as file:
        data = file.read()
        data.validate(full=True)
        return data


def parquet_batches(path: Path, rows: int) -> Iterator[Any]:
    """Read all columns of a .parquet file as `pyarrow.Table`s of at most `rows` rows.

    Raises:
        DataError: if the file cannot be read.
    """
    import pyarrow as pa

    with _opened(path) as file:
        for batch in file.iter_batches(rows):
            batch.validate(full=True)
            yield pa.Table.from_batches([batch])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a .parquet file; what Arrow raises becomes `DataError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            yield file
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{named(path)}: not a readable .parquet file ({one_line(error)}); write it again"
        ) from error


def table_from_arrow(where: str, data: Any, target: str | None) -> Table:
    """Make a checked table from the columns of a `pyarrow.Table`, which must all be numbers.

    Args:
        where: the file or frame, for messages.
        data: the columns.
        target: the column to predict.

    Raises:
        DataError: if the columns cannot be used.
    """
    import pyarrow as pa

    data = without_index(where, data, target)
    names = tuple(data.column_names)
    check_names(where, names)
    target_column = find_target(where, names, target)
    values = np.empty((data.num_rows, len(names)))
    for position, name in enumerate(names):
        column = data.column(position)
        kind = column.type
        if pa.types.is_integer(kind):
            if column.null_count == 0:
                check_values(where, column.to_numpy()[:, None], (name,))
            values[:, position] = column.cast(pa.float64(), safe=False).to_numpy()
        elif pa.types.is_floating(kind):
            values[:, position] = column.to_numpy()
        elif pa.types.is_decimal(kind):
            values[:, position] = column.cast(pa.float64(), safe=False).to_numpy()
        else:
            first = f", first {shown(column[0].as_py())} in row 0" if data.num_rows else ""
            raise DataError(
                f"{where}: column {shown(name)} is of type {shown(str(kind))}{first}, wanted "
                "numbers; encode it as numbers, leave it out of the file, or read it with "
                "`Preprocessor`"
            )
    check_values(where, values, names)
    whole = pa.types.is_integer(data.column(target_column).type)
    return table_from_columns(where, values, names, target_column, whole)
