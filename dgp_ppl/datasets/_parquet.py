"""Reader of .parquet files."""

from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._table import (
    Table,
    as_targets,
    check_names,
    check_table,
    check_values,
    file_task,
    find_target,
    named,
    one_line,
    shown,
)


def read_parquet(path: Path, target: str | None) -> Table:
    """Reads a .parquet file: the column `target`, and all others as inputs.

    Columns of whole, floating or decimal numbers are read. An index that pandas stored is left
    out, as pandas itself does.

    Raises:
        DataError: the file cannot be used.
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
    y_at = find_target(where, names, target)
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
    task = file_task(values[:, y_at], whole=pa.types.is_integer(data.column(y_at).type))
    return check_table(
        where,
        Table(
            x=np.delete(values, y_at, axis=1),
            y=as_targets(values[:, y_at], task),
            x_names=names[:y_at] + names[y_at + 1 :],
            y_name=names[y_at],
            task=task,
        ),
    )
