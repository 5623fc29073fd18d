"""`ParquetReader`: rows of .parquet files, or of folders of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl._streams._readers import Arrays, Interval, Reader

__all__ = ["ParquetReader", "parquet_columns", "without_index"]


class ParquetReader(Reader):
    """Reads the row groups that hold the wanted rows, one at a time.

    Args:
        path: a .parquet file, or a folder of them.
        inputs: columns of x; None for all but the target.
        target: the column of y, or several.

    Attributes:
        inputs: columns of x.

    Raises:
        DataError: if the files cannot be read, or a column is missing or no numbers.
    """

    buffer_bytes = 2**26  # of many row groups, which are large

    def __init__(
        self,
        path: str | os.PathLike[str],
        inputs: Sequence[str] | None,
        target: str | Sequence[str] | None,
    ) -> None:
        import pyarrow as pa

        self.path = os.path.expanduser(os.fspath(path))
        dataset = _opened(self.path)
        with _readable(self.path):
            files = list(dataset.get_fragments())
            groups = [g for f in files for g in f.split_by_row_group()]
            stored = [(f.path, set(f.physical_schema.names)) for f in files]
            counts = [g.row_groups[0].num_rows for g in groups]
        self._schema = dataset.schema
        targets = [target] if isinstance(target, str) else list(target or ())
        rest = [n for n in _columns(self.path, self._schema) if n not in targets]
        self.inputs = tuple(rest if inputs is None else inputs)
        self._columns = [self.inputs, target if isinstance(target, str) else tuple(targets)]
        self._columns = self._columns[: 2 if targets else 1]
        if not self.inputs:
            raise DataError(f"{self.path}: there are no inputs; name some columns")
        self._check_columns([*self.inputs, *targets])
        # Columns that no file stores are parts of the folders' names.
        wanted = {*self.inputs, *targets} & set().union(*(names for _, names in stored))
        for file, names in stored:
            if lost := sorted(wanted - names):
                raise DataError(
                    f"{self.path}: the file {file} has no column {lost[0]!r}, which others have; "
                    "write it again, or leave the column out"
                )
        self._groups = [g for g, n in zip(groups, counts, strict=True) if n]
        with _readable(self.path):
            self._floats = {
                name
                for name in targets
                if not pa.types.is_floating(self._schema.field(name).type)
                and any(_may_miss(group, name) for group in self._groups)
            }
        self._starts = np.concatenate([[0], np.cumsum([n for n in counts if n])]).astype(np.int64)
        self.num_rows = int(self._starts[-1])
        self._latest: tuple[int, Arrays] | None = None  # the row group that was read last
        if not self.num_rows:
            raise DataError(f"{self.path}: no rows, wanted some; check that the files are complete")
        self.chunk_rows = int(np.ceil(self.num_rows / len(self._groups)))

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        rows = sum(stop - start for start, stop in intervals)
        wanted = sorted(self._pieces(intervals))
        found: Arrays | None = None
        group, arrays = -1, ()
        for number, start, stop, position in wanted:
            if number != group:
                group, arrays = number, self._group(number)
            if found is None:
                found = tuple(np.empty((rows, *a.shape[1:]), a.dtype) for a in arrays)
            for out, array in zip(found, arrays, strict=True):
                out[position : position + stop - start] = array[start:stop]
        return found or ()

    def _pieces(self, intervals: Sequence[Interval]) -> Iterator[tuple[int, int, int, int]]:
        """Yield the row group, its rows [start, stop), and their position in the result."""
        position = 0
        for start, stop in intervals:
            while start < stop:
                number = int(np.searchsorted(self._starts, start, side="right")) - 1
                first, last = int(self._starts[number]), int(self._starts[number + 1])
                end = min(stop, last)
                yield number, start - first, end - first, position
                position += end - start
                start = end

    def _group(self, number: int) -> Arrays:
        """Return a row group; that of the last read is at hand, as reads in order meet it again."""
        latest = self._latest
        if latest is None or latest[0] != number:
            self._latest = latest = number, self._load(number)
        return latest[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_latest": None}

    def _load(self, number: int) -> Arrays:
        """Read a row group."""
        names = [n for part in self._columns for n in ([part] if isinstance(part, str) else part)]
        with _readable(self.path):
            group = self._groups[number]
            table = group.to_table(self._schema, columns=names, use_threads=False)
            columns = {n: self._numbers(n, table[n]) for n in names}
        wanted = int(self._starts[number + 1] - self._starts[number])
        if table.num_rows != wanted:
            raise DataError(f"{self.path}: the files have changed since they were opened")
        x = np.stack([columns[n] for n in self.inputs], axis=1, dtype=self._float(self.inputs))
        if len(self._columns) == 1:
            return (x,)
        part = self._columns[1]
        y = columns[part] if isinstance(part, str) else np.stack([columns[n] for n in part], axis=1)
        return x, y

    def _float(self, names: Sequence[str]) -> Any:
        """Return the type that holds floats of these columns."""
        import pyarrow as pa

        small = (pa.float32(), pa.float16(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16())
        is_small = all(self._schema.field(n).type in small for n in names)
        return np.float32 if is_small else np.float64

    def _numbers(self, name: str, column: Any) -> np.ndarray:
        """Return a column as numbers, of one type in all row groups: NaN for missing cells."""
        import pyarrow as pa

        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        if (
            pa.types.is_decimal(kind)
            or name in self._floats
            or (column.null_count and not pa.types.is_floating(kind))
        ):
            column = column.cast(pa.float64(), safe=False)
        return column.to_numpy()

    def _check_columns(self, names: Sequence[str]) -> None:
        import pyarrow.types as types

        known = self._schema.names
        for name in names:
            if name not in known:
                raise DataError(
                    f"{self.path}: there is no column {name!r}; the columns are "
                    f"{', '.join(map(repr, known))}"
                )
            kind = self._schema.field(name).type
            wanted = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
            if not any(is_kind(kind) for is_kind in wanted):
                raise DataError(
                    f"{self.path}: column {name!r} is of type {str(kind)!r}, wanted numbers; "
                    "encode it as numbers, or leave it out (inputs=[...], --drop)"
                )

    def __repr__(self) -> str:
        return f"{self.path} in {len(self._groups)} row groups"


def parquet_columns(path: str | os.PathLike[str]) -> list[str]:
    """Return the columns of a .parquet file, or of a folder of them, without a pandas index.

    Raises:
        DataError: if there are no such files, or they cannot be read.
    """
    path = os.path.expanduser(os.fspath(path))
    if not (schema := _opened(path).schema).names:
        raise DataError(f"{path}: a folder without .parquet files; name a file or another folder")
    return _columns(path, schema)


def without_index(where: str, data: Any, keep: str | None) -> Any:
    """Leave out the columns of a `pyarrow.Table` in which pandas stored an index.

    Args:
        where: the file or frame, for messages.
        data: the columns.
        keep: a column of the index to keep, such as the target; None for none.

    Raises:
        DataError: if the record of the index is damaged.
    """
    try:
        metadata: dict[str, Any] = data.schema.pandas_metadata or {}
        index = [name for name in metadata.get("index_columns", ()) if isinstance(name, str)]
    except ValueError as error:
        raise DataError(
            f"{where}: not a readable table ({one_line(error)}); write it again"
        ) from error
    columns = enumerate(data.column_names)
    return data.select([i for i, name in columns if name == keep or name not in index])


def _opened(path: str) -> Any:
    import pyarrow.dataset as ds

    with _readable(path):
        return ds.dataset(path, format="parquet", partitioning="hive")


def _columns(path: str, schema: Any) -> list[str]:
    return without_index(path, schema.empty_table(), None).column_names


def _may_miss(group: Any, name: str) -> bool:
    """Return whether a row group may miss cells of a column, by its statistics."""
    metadata = group.metadata.row_group(group.row_groups[0].id)
    for i in range(metadata.num_columns):
        column = metadata.column(i)
        if column.path_in_schema == name:
            found = column.statistics
            return found is None or not found.has_null_count or found.null_count > 0
    return False  # a part of the folder's name


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what Arrow raises into `DataError`."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: not a readable .parquet file, or folder of them ({one_line(error)}); write "
            "it again"
        ) from error
