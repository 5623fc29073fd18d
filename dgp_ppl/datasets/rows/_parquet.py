"""`ParquetReader`: rows of .parquet files, or of folders of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import readable, without_index
from dgp_ppl.datasets.rows._readers import Arrays, Interval, Reader, hash_arrays
from dgp_ppl.datasets.rows._row_groups import Piece, RowGroups

__all__ = ["ParquetReader", "parquet_columns"]

_CHANGED = "{}: the files have changed since they were opened; open them again"
_COLUMN_BYTES = 2**16  # read from a file at once, of a column
_BATCH_CELLS, _BATCH_ROWS = 2**20, (2**8, 2**14)
# A column that is being decoded holds about 2 MB: a page, and what it was compressed to.
_OPEN_COLUMNS, _LANES = 128, (4, 16)
_IDENTITY_GROUPS = 16  # whose first rows tell a source from others


class ParquetReader(Reader):
    """Reads the row groups that hold the wanted rows, from several places in turn.

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
        with readable(self.path):
            files = list(dataset.get_fragments())
            groups = [g for f in files for g in f.split_by_row_group()]
            stored = [(f.path, set(f.physical_schema.names)) for f in files]
            counts = [g.row_groups[0].num_rows for g in groups]
            self._written = {f.path: _written(f) for f in files}
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
        with readable(self.path):
            self._floats = {
                name
                for name in targets
                if not pa.types.is_floating(self._schema.field(name).type)
                and any(_may_miss(group, name) for group in self._groups)
            }
        self._starts = np.concatenate([[0], np.cumsum([n for n in counts if n])]).astype(np.int64)
        self.num_rows = int(self._starts[-1])
        if not self.num_rows:
            raise DataError(f"{self.path}: no rows, wanted some; check that the files are complete")
        self._names = [*dict.fromkeys([*self.inputs, *targets])]
        self._batch_rows = int(np.clip(_BATCH_CELLS // len(self._names), *_BATCH_ROWS))
        self.lanes = int(np.clip(_OPEN_COLUMNS // len(self._names), *_LANES))
        # Fewer row groups than lanes are read from several places each.
        self.chunk_rows = -(-self.num_rows // max(self.lanes, len(self._groups)))

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        return self._row_groups.read(list(self._pieces(intervals)))

    def take(self, numbers: np.ndarray) -> Arrays:
        intervals = [(int(n), int(n) + 1) for n in numbers]
        return self._row_groups.read_once(list(self._pieces(intervals)))

    def _pieces(self, intervals: Sequence[Interval]) -> Iterator[Piece]:
        """Yield the rows of intervals, divided at the ends of row groups."""
        position = 0
        for start, stop in intervals:
            while start < stop:
                number = int(np.searchsorted(self._starts, start, side="right")) - 1
                first, last = int(self._starts[number]), int(self._starts[number + 1])
                end = min(stop, last)
                yield Piece(number, start - first, end - first, position)
                position += end - start
                start = end

    @cached_property
    def _row_groups(self) -> RowGroups:
        return RowGroups(
            np.diff(self._starts).tolist(), self._batches, most=self.lanes + 2,
            reach=self._batch_rows,
        )  # fmt: skip

    def identify(self, found: Any) -> None:
        super().identify(found)
        found.update(repr(self._columns).encode())
        for group in self._groups:  # from the footers, which are in memory
            footer = group.metadata.row_group(group.row_groups[0].id)
            found.update(f"{footer.num_rows} {group.partition_expression}".encode())
            for i in range(footer.num_columns):
                if (column := footer.column(i)).path_in_schema in self._names:
                    found.update(repr(_figures(column)).encode())
        some = np.unique(np.linspace(0, len(self._groups) - 1, _IDENTITY_GROUPS).astype(int))
        lengths = np.minimum(np.diff(self._starts)[some], self._batch_rows)
        for group, length in zip(some.tolist(), lengths.tolist(), strict=True):
            hash_arrays(found, self._row_groups.read_once([Piece(group, 0, length, 0)]))

    def __getstate__(self) -> dict[str, Any]:
        return {n: value for n, value in self.__dict__.items() if n != "_row_groups"}

    def _batches(self, number: int) -> Iterator[tuple[int, Callable[[], Arrays]]]:
        """Decode a row group: yield the rows of each batch, and what makes their arrays."""
        import pyarrow.parquet as pq

        group, rows = self._groups[number], 0
        wanted = int(self._starts[number + 1] - self._starts[number])
        with readable(self.path):
            if self._written[group.path] != _written(group):
                raise DataError(_CHANGED.format(self.path))
            stored = set(group.physical_schema.names)
            names = [n for n in self._names if n in stored]
            with pq.ParquetFile(
                group.open(), metadata=group.metadata, buffer_size=_COLUMN_BYTES, pre_buffer=False
            ) as file:
                for batch in file.iter_batches(
                    self._batch_rows, [group.row_groups[0].id], names, use_threads=False
                ):
                    rows += len(batch)
                    yield len(batch), partial(self._arrays, group, batch)
        if rows != wanted:
            raise DataError(_CHANGED.format(self.path))

    def _arrays(self, group: Any, batch: Any) -> Arrays:
        """Return the arrays of the rows of a batch."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        parts = ds.get_partition_keys(group.partition_expression)
        columns = {}
        with readable(self.path):
            for name in self._names:
                kind = self._schema.field(name).type
                if name in batch.schema.names:
                    column = pa.chunked_array([batch.column(name)]).cast(kind)
                else:
                    column = pa.chunked_array([pa.repeat(pa.scalar(parts[name], kind), len(batch))])
                columns[name] = self._numbers(name, column)
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


def _opened(path: str) -> Any:
    import pyarrow.dataset as ds

    with readable(path):
        return ds.dataset(path, format="parquet", partitioning="hive")


def _figures(column: Any) -> tuple[Any, ...]:
    """Return what a footer says of a column in a row group."""
    sizes = column.total_compressed_size, column.total_uncompressed_size
    found = column.statistics
    if found is None:
        return sizes
    ends = (found.min_raw, found.max_raw) if found.has_min_max else ()
    return (*sizes, found.null_count if found.has_null_count else None, *ends)


def _written(file: Any) -> tuple[int, int | None]:
    """Return the size of a file and when it was written."""
    info = file.filesystem.get_file_info(file.path)
    return info.size, info.mtime_ns


def _columns(path: str, schema: Any) -> list[str]:
    return without_index(path, schema.empty_table()).column_names


def _may_miss(group: Any, name: str) -> bool:
    """Return whether a row group may miss cells of a column, by its statistics."""
    metadata = group.metadata.row_group(group.row_groups[0].id)
    for i in range(metadata.num_columns):
        column = metadata.column(i)
        if column.path_in_schema == name:
            found = column.statistics
            return found is None or not found.has_null_count or found.null_count > 0
    return False  # a part of the folder's name
