"""`Table`: the columns of a file or of a data frame as they are, and the readers that make it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import (
    ArrowFrame,
    arrow,
    frame_columns,
    frame_name,
    readable,
    without_index,
)
from dgp_ppl.datasets._csv import check_names, csv_batches, csv_rows
from dgp_ppl.datasets._messages import WHOLE_MAX, check_file, named, shown

TABLE_SUFFIXES = (".csv", ".parquet")
DAY_MICROSECONDS = 86_400_000_000
_BATCH_ROWS = 2**16
_MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "<na>", "nan", "+nan", "-nan", "null", "none", "nil", "?", ".", "-")
)
"""Texts of cells without a value, in lower case."""


def is_missing(text: str) -> bool:
    """Return whether a text stands for a missing cell: empty, NA, nan, null, ?, ..."""
    return text.lower() in _MISSING


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table."""

    kind: str  # "number", "date" or "text"; else the type of a column that cannot be an input
    # Numbers, or days since 1970-01-01, float64 [N], NaN where missing; of text the position of
    # each row's text in `texts`, int64 [N], -1 where missing.
    values: np.ndarray
    texts: tuple[str, ...] = ()  # that differ, without spaces around them
    whole: bool = False  # whether the numbers are stored or written as whole numbers
    declared: bool = False  # whether the source says that it holds categories or booleans

    def can_be(self, kind: str) -> bool:
        """Return whether this is a column of numbers or dates of a kind; one without cells can."""
        is_empty = self.kind in ("number", "date") and bool(np.isnan(self.values).all())
        return self.kind == kind or is_empty

    def passing(self, test: Callable[[str], object]) -> np.ndarray:
        """Return which rows have a text that passes a test, [N]; missing cells have none."""
        return np.array([*(bool(test(text)) for text in self.texts), False])[self.values]

    def cell(self, row: int) -> str:
        value = self.values[row]
        if self.kind != "text":
            return str(value)
        return shown(self.texts[value] if value >= 0 else "")

    def take(self, rows: np.ndarray) -> Column:
        """Return some rows: their positions, or a mask."""
        values = self.values[rows]
        if self.kind != "text":
            return replace(self, values=values)
        used, positions = np.unique(values[values >= 0], return_inverse=True)
        values[values >= 0] = positions
        return replace(self, values=values, texts=tuple(self.texts[i] for i in used))


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file or of a data frame; `read_table` makes it."""

    where: str  # the file or frame, for messages
    columns: dict[str, Column]
    rows: np.ndarray  # numbers in the source, from 0, [N]
    path: Path | None = None  # of a file that has lines

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    def take(self, rows: np.ndarray) -> Table:
        """Return a table of some rows: their positions in this table, or a mask."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self, columns=columns, rows=self.rows[rows])

    def place(self, row: int) -> str:
        """Return where a row is in its source, for messages."""
        number = int(self.rows[row])
        if self.path is None:
            return f"row {number} (from 0)"
        line, _ = next(itertools.islice(csv_rows(self.path), number + 1, None), (None, None))
        return f"row {number} (from 0)" if line is None else f"line {line}"


def read_table(
    source: str | os.PathLike[str] | ArrowFrame | Table, *, texts: Collection[str] = ()
) -> Table:
    """Read columns of a .csv or .parquet file, or a frame; `texts` stay texts, so 007 is not 7."""
    if isinstance(source, Table):
        return source
    if not isinstance(source, str | os.PathLike):
        return _table(frame_name(source), frame_columns(source), texts)
    path = Path(os.path.expanduser(os.fspath(source)))
    raw = arrow().concat_tables(_batches(path))
    return _table(named(path), raw, texts, path)


def table_chunks(
    path: str | os.PathLike[str], rows: int, *, texts: Collection[str] = ()
) -> Iterator[tuple[Any, Table]]:
    """Read a file, or a folder of .parquet files, some rows at a time, so that memory is bounded.

    Yield the columns as the file has them, a `pyarrow.Table` (of texts for .csv files), and the
    `Table` of the same rows. There is at least one row. Rows before a fault may have been yielded.
    """
    path = Path(os.path.expanduser(os.fspath(path)))
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: the folder has no .parquet files; name another one, or a file")
    for file in files:
        start = 0
        for raw in _of_size(_batches(file), rows):
            table = _table(named(file), raw, texts, file)
            numbers = np.arange(start, start := start + len(table))
            yield raw, replace(table, rows=numbers)
        if not start:
            raise DataError(f"{named(file)}: no rows, wanted some; check that it is complete")


def _batches(path: Path) -> Iterator[Any]:
    """Yield the rows of a file as `pyarrow.Table`s, at least one."""
    check_file(path, TABLE_SUFFIXES)
    if path.suffix.lower() == ".csv":
        yield from csv_batches(path)
        return
    parquet = arrow("parquet")
    with readable(named(path)), path.open("rb") as stream, parquet.ParquetFile(stream) as file:
        yield file.schema_arrow.empty_table()
        for batch in file.iter_batches(_BATCH_ROWS):
            batch.validate(full=True)
            yield arrow().Table.from_batches([batch])


def _of_size(tables: Iterator[Any], rows: int) -> Iterator[Any]:
    """Yield the same rows in tables of a given number of rows; the last one may have fewer."""
    held, num = [], 0
    for table in tables:
        held.append(table)
        num += len(table)
        if num >= rows:
            whole = arrow().concat_tables(held)
            for start in range(0, num - rows + 1, rows):
                yield whole.slice(start, rows)
            num %= rows
            held = [whole.slice(len(whole) - num)]
    if num:
        yield arrow().concat_tables(held)


def _table(where: str, data: Any, texts: Collection[str], path: Path | None = None) -> Table:
    """Make a table of a `pyarrow.Table`; `texts` as for `read_table`."""
    data = without_index(where, data)
    check_names(where, data.column_names)
    texts = frozenset(texts)
    columns = {
        name: _column(column.combine_chunks(), name in texts)
        for name, column in zip(data.column_names, data.columns, strict=True)
    }
    has_lines = path is not None and path.suffix.lower() == ".csv"
    return Table(where, columns, np.arange(data.num_rows), path if has_lines else None)


def _column(column: Any, keep: bool) -> Column:
    """Make a column of an Arrow array; `keep` says that texts stay texts."""
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):  # of no chunks
        column = pa.array([], column.type)
    kind, types = column.type, pa.types
    is_category = types.is_dictionary(kind)
    inner = kind.value_type if is_category else kind
    is_number = types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner)
    if types.is_boolean(inner) or (is_category and is_number):
        return _texts(column.cast(inner).cast(pa.string()), declared=True)
    if types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner):
        return _texts(column, keep=keep, declared=is_category)
    if types.is_null(kind):
        return Column("number", np.full(len(column), np.nan))
    if types.is_date(kind) or types.is_timestamp(kind):
        micro = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        days = micro.cast(pa.int64()).cast(pa.float64(), safe=False)
        return Column("date", days.to_numpy(zero_copy_only=False) / DAY_MICROSECONDS)
    if not is_number:
        return Column(str(kind), np.arange(len(column)))
    if not types.is_floating(kind):
        ends = arrow("compute").min_max(column).as_py()
        if max(abs(ends["min"] or 0), abs(ends["max"] or 0)) > WHOLE_MAX:
            return _texts(column.cast(pa.string()), keep=True)  # float64 would lose digits
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    known = values[~np.isnan(values)]
    # pandas stores whole numbers as floating ones if a cell is missing.
    hidden = 0 < len(known) < len(values) and np.array_equal(known, np.round(known))
    return Column("number", values, whole=types.is_integer(kind) or hidden)


def _texts(column: Any, keep: bool = False, declared: bool = False) -> Column:
    """Make a column of Arrow strings: numbers if all cells are plain ones, and none are kept."""
    pa = arrow()
    if pa.types.is_string_view(column.type):  # polars' type, which few functions know
        column = column.cast(pa.large_string())
    if not (keep or declared) and (numbers := _plain_numbers(column)) is not None:
        return numbers
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    stripped = [None if text is None else text.strip() for text in encoded.dictionary.to_pylist()]
    kept = [text for text in stripped if text is not None and not is_missing(text)]
    position = {text: i for i, text in enumerate(dict.fromkeys(kept))}
    lookup = np.array([position.get(text, -1) for text in stripped] + [-1])
    indices = encoded.indices.cast(pa.int64()).fill_null(len(stripped))
    codes = lookup[indices.to_numpy(zero_copy_only=False)]
    return Column("text", codes, tuple(position), declared=declared)


def _plain_numbers(column: Any) -> Column | None:
    """Convert texts to numbers; None if some text is neither a plain number nor missing."""
    pa, pc = arrow(), arrow("compute")
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(sorted(_MISSING), trimmed.type))
    trimmed = pc.if_else(missing, pa.scalar(None, trimmed.type), trimmed)
    try:
        values = trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False)  # NaN where missing
    except pa.ArrowInvalid:
        return None
    are_whole = pc.match_substring_regex(trimmed, r"^[+-]?[0-9]+$").fill_null(True)
    too_long = np.abs(values) >= WHOLE_MAX  # such whole numbers may have lost digits
    if np.isnan(values).all() or (too_long & are_whole.to_numpy(zero_copy_only=False)).any():
        return None
    return Column("number", values, whole=bool(pc.all(are_whole).as_py()))
