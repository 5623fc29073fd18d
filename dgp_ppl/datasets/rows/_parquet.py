"""`ParquetReader`: rows of .parquet files, or of folders of them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import arrow, readable, without_index
from dgp_ppl.datasets._messages import TOO_LONG, WHOLE_MAX, bad_cell, quoted, shown
from dgp_ppl.datasets.rows._readers import Arrays, Interval, Reader, first_bad, runs

_COLUMN_BYTES = 2**16  # of a column that one read takes from a file
_BATCH_CELLS, _BATCH_ROWS = 2**20, (2**8, 2**14)
# A column that is being decoded holds about 2 MB: a page, and what it was compressed to.
_OPEN_COLUMNS, _ARCS = 128, (4, 16)


class _Cursor:
    """A row group that is decoded from its beginning; `row` is the next row."""

    def __init__(self, group: int, batches: Iterator[Any]) -> None:
        self.group, self.row = group, 0
        self._batches, self._rest = batches, ()

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yield Arrow's batches of the rows [start, stop), which are not before `row`."""
        while self.row < stop:
            batch = self._rest or next(self._batches)
            skip, end = max(0, start - self.row), min(len(batch), stop - self.row)
            if skip < end:
                yield batch.slice(skip, end - skip)
            self.row += end
            self._rest = batch.slice(end)


class ParquetReader(Reader):
    """Reads the row groups that hold the wanted rows, from several places in turn.

    Parquet cannot be read from the middle of a row group. So a reading goes on from a place where
    an earlier one ended, if one is close before it, and else from the beginning of the row group.
    Memory holds a batch for each place, however large the row groups are.
    """

    buffer_bytes = 2**26  # of many row groups, which are large
    chunk_rows = 1

    def __init__(
        self,
        path: str | os.PathLike[str],
        inputs: Sequence[str] | None,
        target: str | Sequence[str] | None,
    ) -> None:
        self.path = os.path.expanduser(os.fspath(path))
        dataset = _opened(self.path)
        with readable(self.path):
            files = list(dataset.get_fragments())
            groups = [g for f in files for g in f.split_by_row_group()]
            groups = [(g, g.row_groups[0].num_rows) for g in groups]
        self._schema = dataset.schema
        self._target = target if isinstance(target, str) else list(target or ())
        targets = dict.fromkeys([target] if isinstance(target, str) else self._target)
        rest = [n for n in _columns(self.path, self._schema) if n not in targets]
        self._inputs = list(rest if inputs is None else inputs)
        self._names = [*dict.fromkeys([*self._inputs, *targets])]
        if not self._inputs:
            raise DataError(f"{self.path}: there are no inputs; name some columns")
        self._check_columns(files)
        self._groups = [g for g, num in groups if num]
        self._starts = np.cumsum([0, *(num for _, num in groups if num)])
        self.num_rows = int(self._starts[-1])
        if not self.num_rows:
            raise DataError(f"{self.path}: no rows, wanted some; check that the files are complete")
        pa = arrow()
        whole = {n for n in targets if not pa.types.is_floating(self._schema.field(n).type)}
        for group in self._groups if whole else ():
            for column in _footers(group, whole):
                found = column.statistics  # that say whether cells are missing
                if found is None or not found.has_null_count or found.null_count:
                    whole.remove(column.path_in_schema)
        self._types = {name: self._type(name, name in whole) for name in self._names}
        small = (pa.float32(), pa.float16(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16())
        is_small = all(self._schema.field(n).type in small for n in self._inputs)
        self._dtype = np.float32 if is_small else np.float64
        self._batch_rows = int(np.clip(_BATCH_CELLS // len(self._names), *_BATCH_ROWS))
        self.most_arcs = int(np.clip(_OPEN_COLUMNS // len(self._names), *_ARCS))
        self._cursors: list[_Cursor] = []
        self._lock = threading.Lock()

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        with self._lock:
            return self._read(intervals, self._cursors, self._batch_rows)

    def take(self, numbers: np.ndarray) -> Arrays:
        return self._read(runs(numbers), [], self.num_rows)

    def place(self, number: int) -> str:
        path = self._groups[self._group_of(number)].path
        first = [group.path for group in self._groups].index(path)
        return f"{super().place(number - int(self._starts[first]))} of {path!r}"

    def _read(self, intervals: Sequence[Interval], cursors: list[_Cursor], reach: int) -> Arrays:
        """Read rows. A cursor goes on with rows at most `reach` after it, and is kept."""
        rows, found = sum(stop - start for start, stop in intervals), ()
        for group, start, stop, position in sorted(self._pieces(intervals)):
            near = [c for c in cursors if c.group == group and 0 <= start - c.row <= reach]
            if near:
                cursor = max(near, key=lambda c: c.row)
                cursors.remove(cursor)
            else:
                cursor = _Cursor(group, self._batches(group))
            first = int(self._starts[group]) + start - position
            for batch in cursor.read(start, stop):
                arrays = self._arrays(batch, first + position)
                found = found or tuple(np.empty((rows, *a.shape[1:]), a.dtype) for a in arrays)
                for out, array in zip(found, arrays, strict=True):
                    out[position : position + len(array)] = array
                position += len(batch)
            if stop < self._starts[group + 1] - self._starts[group]:
                cursors.append(cursor)
                del cursors[: -self.most_arcs - 2]  # those used last are at the end
        return found

    def _pieces(self, intervals: Sequence[Interval]) -> Iterator[tuple[int, int, int, int]]:
        """Yield each row group, its rows [start, stop), and the first one's place in the result."""
        position = 0
        for start, stop in intervals:
            while start < stop:
                group = self._group_of(start)
                first, end = int(self._starts[group]), min(stop, int(self._starts[group + 1]))
                yield group, start - first, end - first, position
                position, start = position + end - start, end

    def _group_of(self, number: int) -> int:
        return int(np.searchsorted(self._starts, number, side="right")) - 1

    def _batches(self, number: int) -> Iterator[Any]:
        """Decode a row group from its beginning."""
        group = self._groups[number]
        options = {"metadata": group.metadata, "buffer_size": _COLUMN_BYTES, "pre_buffer": False}
        part = {"row_groups": [group.row_groups[0].id], "columns": self._names}
        open_file = arrow("parquet").ParquetFile
        with readable(self.path), open_file(group.open(), **options) as file:
            yield from file.iter_batches(self._batch_rows, **part, use_threads=False)
        raise DataError(f"{self.path}: files have changed since they were opened; open them again")

    def _type(self, name: str, is_whole: bool) -> Any:
        """Return the type of a column: of targets without missing cells it may be whole numbers."""
        pa, kind = arrow(), self._schema.field(name).type
        if pa.types.is_floating(kind):
            return kind
        if not is_whole or pa.types.is_decimal(kind):
            return pa.float64()  # NaN for missing cells
        return pa.int8() if pa.types.is_boolean(kind) else kind

    def _arrays(self, batch: Any, first: int) -> Arrays:
        """Return the arrays of the rows of a batch, from the row `first` on."""
        columns, is_float = {}, arrow().types.is_floating
        with readable(self.path):
            for name, kind in self._types.items():
                column = batch.column(name)
                cells = column.cast(self._schema.field(name).type).cast(kind, safe=False)
                columns[name] = values = cells.to_numpy(zero_copy_only=False)
                is_made_float = is_float(kind) and not is_float(column.type)
                if is_made_float and (at := first_bad(values, WHOLE_MAX - 1, may_miss=True)):
                    where, place = f"{self.path}: column {shown(name)}", self.place(first + at[0])
                    raise bad_cell(where, values[at], place, TOO_LONG)
        x = np.stack([columns[n] for n in self._inputs], axis=1, dtype=self._dtype)
        if isinstance(self._target, str):
            return x, columns[self._target]
        return (x, np.stack([columns[n] for n in self._target], axis=1)) if self._target else (x,)

    def identify(self, found: Any) -> None:
        found.update(f"{self.num_rows} rows {self._inputs} {self._target}".encode())
        for group in {group.path: group for group in self._groups}.values():
            with readable(self.path), group.open() as file:
                found.update(hashlib.file_digest(file, "sha256").digest())

    def __getstate__(self) -> dict[str, Any]:
        return {n: v for n, v in self.__dict__.items() if n not in ("_cursors", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _cursors=[], _lock=threading.Lock())

    def _check_columns(self, files: Sequence[Any]) -> None:
        """Raise `DataError` unless all columns exist, hold numbers, and are in all files."""
        types = arrow().types
        is_number = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
        if lost := [n for n in self._names if self._schema.get_field_index(n) < 0]:
            raise DataError(
                f"{self.path}: there is no column {lost[0]!r}; the columns are "
                f"{quoted(self._schema.names)}"
            )
        for name in self._names:
            kind = self._schema.field(name).type
            if not any(test(kind) for test in is_number):
                raise DataError(
                    f"{self.path}: column {name!r} is of type {str(kind)!r}, wanted numbers; "
                    "encode it as numbers, or leave it out (inputs=[...], --drop)"
                )
        with readable(self.path):
            stored = {f.path: set(f.physical_schema.names) for f in files}
        for file, names in stored.items():
            if lost := sorted(set(self._names) - names):
                raise DataError(
                    f"{self.path}: the file {file} has no column {lost[0]!r}, which other files "
                    "have; write it again, or leave the column out"
                )


def parquet_columns(path: str | os.PathLike[str]) -> list[str]:
    """Return the columns of a .parquet file, or of a folder of them, without a pandas index."""
    path = os.path.expanduser(os.fspath(path))
    if not (schema := _opened(path).schema).names:
        raise DataError(f"{path}: a folder without .parquet files; name a file or another folder")
    return _columns(path, schema)


def _opened(path: str) -> Any:
    with readable(path):
        return arrow("dataset").dataset(path, format="parquet")


def _columns(path: str, schema: Any) -> list[str]:
    return without_index(path, schema.empty_table()).column_names


def _footers(group: Any, names: Collection[str]) -> list[Any]:
    """Return what a file says about some columns of a row group."""
    footer = group.metadata.row_group(group.row_groups[0].id)
    columns = map(footer.column, range(footer.num_columns))
    return [column for column in columns if column.path_in_schema in names]
