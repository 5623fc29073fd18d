"""Reader of .parquet files."""

from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._table import (
    Table,
    check_names,
    check_values,
    find_target,
    named,
    one_line,
    shown,
    table_from_columns,
)


def read_parquet(path: Path, target: str | None) -> Table:
    """Read a .parquet file: the column `target`, and all other columns as inputs.

    Columns may hold integers, floats or decimals. An index that pandas stored is not an input.

    Raises:
        DataError: if the file cannot be used.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = named(path)
    try:
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            data = file.read()
        metadata: dict[str, Any] = data.schema.pandas_metadata or {}
        index = [name for name in metadata.get("index_columns", ()) if isinstance(name, str)]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{where}: not a readable .parquet file ({one_line(error)}); write it again"
        ) from error
    positions = [
        i for i, name in enumerate(data.column_names) if name == target or name not in index
    ]
    data = data.select(positions)
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
                "numbers; encode it as numbers or leave it out of the file"
            )
    check_values(where, values, names)
    whole = pa.types.is_integer(data.column(target_column).type)
    return table_from_columns(where, values, names, target_column, whole)
