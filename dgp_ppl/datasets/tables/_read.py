"""`read_table`: the columns of a .csv or .parquet file, or of a data frame."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._csv import MISSING, check_width, csv_header, csv_rows
from dgp_ppl.datasets._frame import ArrowFrame, arrow_columns, frame_name
from dgp_ppl.datasets._parquet import parquet_columns
from dgp_ppl.datasets._table import (
    WHOLE_MAX,
    check_file,
    check_names,
    named,
)
from dgp_ppl.datasets.rows import without_index
from dgp_ppl.datasets.tables._cells import DAY_MICROSECONDS, is_missing, is_too_long
from dgp_ppl.datasets.tables._table import Column, NumberColumn, OtherColumn, Table, TextColumn

__all__ = ["TABLE_SUFFIXES", "from_arrow", "from_texts", "read_table"]

TABLE_SUFFIXES = (".csv", ".parquet")


def read_table(
    source: str | os.PathLike[str] | ArrowFrame | Table,
    *,
    keep: str | None = None,
    texts: Collection[str] = (),
) -> Table:
    """Read the columns of a .csv or .parquet file or of a data frame, as they are.

    Numbers, dates, text and missing cells are all accepted. A `Preprocessor` turns the columns into
    numbers. A .csv file is UTF-8 with commas and a header.

    >>> import pyarrow as pa
    >>> from dgp_ppl.datasets import read_table
    >>> read_table(pa.table({"area": [30.5, None], "colour": ["red", "blue"]}))
    Table(pyarrow Table: 2 rows; 'area', 'colour')

    Args:
        source: the file; a frame of pandas, polars, pyarrow or any library with Arrow's PyCapsule
            interface; or a table, which is returned.
        keep: a column of the index that pandas stored; the other columns of an index are left out.
        texts: columns whose texts stay texts, even if all are numbers, so that ``007`` is not 7.

    Returns:
        The table.

    Raises:
        DataError: if there is no such file, or it cannot be read.
    """
    if isinstance(source, Table):
        return source
    if not isinstance(source, str | os.PathLike):
        return from_arrow(frame_name(source), arrow_columns(source), keep, texts)
    path = Path(os.path.expanduser(os.fspath(source)))
    check_file(path, TABLE_SUFFIXES)
    if path.suffix.lower() == ".parquet":
        return from_arrow(named(path), parquet_columns(path), keep, texts)
    return _from_csv(path, texts)


def _from_csv(path: Path, texts: Collection[str]) -> Table:
    where = named(path)
    line, header = csv_header(path)
    names = tuple(name.strip() for name in header)
    check_names(where, names)
    columns = dict(zip(names, _csv_texts(path, line, len(names)), strict=True))
    made = {name: from_texts(column, name in texts) for name, column in columns.items()}
    return Table(where, made, np.arange(len(columns[names[0]])), path)


def _csv_texts(path: Path, line: int, width: int) -> list[Any]:
    """Return the texts of all columns as Arrow arrays.

    Arrow reads quickly, and Python's csv module reads files with quotes or with a fault, whose line
    it knows.
    """
    import pyarrow as pa
    import pyarrow.csv

    names = [str(position) for position in range(width)]
    content = path.read_bytes()
    if b'"' not in content:
        try:
            data = pyarrow.csv.read_csv(
                pa.BufferReader(content),
                read_options=pyarrow.csv.ReadOptions(skip_rows=line, column_names=names),
                parse_options=pyarrow.csv.ParseOptions(quote_char=False),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string())
                ),
            )
        except (pa.ArrowException, ValueError):
            pass
        else:
            return [column.combine_chunks() for column in data.columns]
    texts: list[list[str]] = [[] for _ in names]
    rows = csv_rows(path)
    next(rows)
    for number, row in rows:
        check_width(named(path), number, row, width)
        for column, text in zip(texts, row, strict=True):
            column.append(text)
    return [pa.array(column, pa.string()) for column in texts]


def from_texts(column: Any, keep: bool = False, declared: bool = False) -> Column:
    """Make a column of Arrow strings: numbers if all cells are plain numbers or missing.

    Args:
        column: the strings.
        keep: whether they stay texts in any case.
        declared: whether the source says that they are categories or booleans.
    """
    import pyarrow as pa

    if pa.types.is_string_view(column.type):  # polars' type, which few functions know
        column = column.cast(pa.large_string())
    if not (keep or declared):
        numbers = _plain_numbers(column)
        if numbers is not None:
            return numbers
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    stripped = [None if text is None else text.strip() for text in encoded.dictionary.to_pylist()]
    kept = [text for text in stripped if text is not None and not is_missing(text)]
    position = {text: i for i, text in enumerate(dict.fromkeys(kept))}
    lookup = np.array([position.get(text, -1) for text in stripped] + [-1])
    indices = encoded.indices.cast(pa.int64()).fill_null(len(stripped))
    return TextColumn(tuple(position), lookup[indices.to_numpy(zero_copy_only=False)], declared)


def _plain_numbers(column: Any) -> NumberColumn | None:
    """Convert texts to numbers; None if some text is neither a plain number nor missing."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are made at import, so type checkers miss them
    trimmed = pc.utf8_trim_whitespace(column)
    tokens = pa.array(sorted(MISSING), trimmed.type)
    present = pc.invert(pc.is_in(pc.utf8_lower(trimmed), value_set=tokens))
    trimmed = trimmed.filter(pc.and_(present, column.is_valid()).fill_null(False))
    if not len(trimmed):
        return None
    try:
        numbers = trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    mask = present.to_numpy(zero_copy_only=False).astype(bool)
    mask &= column.is_valid().to_numpy(zero_copy_only=False)
    values = np.full(len(column), np.nan)
    values[mask] = numbers
    whole = bool(pc.all(pc.match_substring_regex(trimmed, r"^[+-]?[0-9]+$")).as_py())
    rows = np.flatnonzero(np.abs(values) >= WHOLE_MAX)  # few, if any; False where missing
    too_long = next((int(r) for r in rows if is_too_long(column[int(r)].as_py().strip())), None)
    return NumberColumn(values, whole=whole, too_long=too_long)


def _first(mask: np.ndarray) -> int | None:
    return int(mask.argmax()) if mask.any() else None


def from_arrow(where: str, data: Any, keep: str | None, texts: Collection[str] = ()) -> Table:
    """Make a table of a `pyarrow.Table`; `keep` and `texts` are those of `read_table`."""
    data = without_index(where, data, keep)
    names = tuple(data.column_names)
    if not names:
        raise DataError(f"{where}: no columns, wanted some; check what wrote it")
    check_names(where, names)
    columns = {
        name: _from_array(column.combine_chunks(), name in texts)
        for name, column in zip(names, data.columns, strict=True)
    }
    return Table(where, columns, np.arange(data.num_rows))


def _from_array(column: Any, keep: bool) -> Column:
    """Make a column of an Arrow array; `keep` is that of `from_texts`."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if isinstance(column, pa.ChunkedArray):  # of no chunks
        column = pa.array([], kind)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        too_long = None
        if types.is_integer(kind):
            cells = column.fill_null(0).to_numpy(zero_copy_only=False)
            low = cells < -WHOLE_MAX if types.is_signed_integer(kind) else False
            too_long = _first((cells > WHOLE_MAX) | low)
        return NumberColumn(values, whole=types.is_integer(kind), too_long=too_long)
    if types.is_date(kind) or types.is_timestamp(kind):
        micro = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        days = micro.cast(pa.int64()).cast(pa.float64(), safe=False)
        values = days.to_numpy(zero_copy_only=False) / DAY_MICROSECONDS
        return NumberColumn(values, is_date=True)
    if types.is_boolean(kind):
        return from_texts(_bool_texts(column), declared=True)
    if types.is_null(kind):
        return NumberColumn(np.full(len(column), np.nan))
    if types.is_dictionary(kind):
        inner = kind.value_type
        if types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner):
            column = column.cast(inner)
            is_bool = types.is_boolean(inner)
            column = _bool_texts(column) if is_bool else column.cast(pa.string())
            return from_texts(column, declared=True)
        if _is_text(inner):
            return from_texts(column, declared=True)
    return from_texts(column, keep) if _is_text(kind) else OtherColumn(str(kind))


def _bool_texts(column: Any) -> Any:
    import pyarrow as pa

    texts = {True: "True", False: "False", None: None}
    return pa.array([texts[value] for value in column.to_pylist()], pa.string())


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
