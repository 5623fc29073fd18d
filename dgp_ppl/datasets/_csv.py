"""Reader of .csv files: a fast parser for clean files, a careful one for good error messages.

The fast one is Arrow's. A file that it does not read as plain numbers goes to Python's csv module,
which gives the line of every cell.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._table import (
    FLOAT32_MAX,
    TOO_LARGE,
    TOO_LONG,
    WHOLE_MAX,
    Table,
    check_names,
    file_task,
    find_target,
    named,
    quoted,
    shown,
    table_from_columns,
)

__all__ = ["MISSING", "check_width", "csv_header", "csv_rows", "read_csv"]

MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "<na>", "nan", "+nan", "-nan", "null", "none", "nil", "?", ".", "-")
)
"""Texts of cells without a value, in lower case."""

# Faults of cells, in the order of reporting: a description, and what to do.
_FAULTS = {
    "text": (
        "not a number",
        "encode the column as numbers, leave it out of the file, or read it with `Preprocessor`",
    ),
    "missing": ("missing (empty or NaN)", "drop these rows or fill the cells in"),
    "infinite": ("infinite", "drop these rows or correct the cells"),
    "large": TOO_LARGE,
    "digits": TOO_LONG,
}


@dataclass
class _Fault:
    """The cells with one kind of fault: the first one, their number, and their columns."""

    line: int
    column: int
    text: str
    count: int = 0
    columns: set[int] = field(default_factory=set)


def read_csv(path: Path, target: str | None) -> Table:
    """Read a .csv file: the column `target`, and all other columns as inputs.

    The file is UTF-8, with or without a byte order mark, and separated by commas. Blank lines are
    skipped, and the first other line is the header. Messages count lines from 1.

    Raises:
        DataError: if the file cannot be used.
    """
    where = named(path)
    line, header = csv_header(path)
    names = tuple(name.strip() for name in header)
    check_names(where, names)
    target_column = find_target(where, names, target)
    values = _read_fast(path, line, len(names))
    if values is None:
        values, whole = _read_careful(path, names, target_column)
    else:
        whole = file_task(values[:, target_column], whole=True) == "binary" and all(
            _is_whole(row[target_column]) for _, row in islice(csv_rows(path), 1, None)
        )
    return table_from_columns(where, values, names, target_column, whole)


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its last line."""
    where = named(path)
    line = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for row in reader:
                line = reader.line_num
                if row:
                    yield line, row
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: line {_first_bad_line(path)} is not UTF-8 text; save the file as CSV UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(
            f"{where}: line {line + 1} is not valid CSV ({one_line(error)}); check its quotes"
        ) from error
    except OSError as error:
        raise DataError(
            f"{where}: cannot be read ({error.strerror or one_line(error)}); check the file"
        ) from error


def _first_bad_line(path: Path) -> int:
    """Return the number, from 1, of the first line that is not UTF-8."""
    number = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):  # noqa: B007
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                break
    return number


def csv_header(path: Path) -> tuple[int, list[str]]:
    """Return the number of the header's last line, and the header."""
    rows = csv_rows(path)
    first = next(rows, None)
    if first is None:
        raise DataError(
            f"{named(path)}: the file is empty, wanted a header line and rows of numbers; "
            "check that it is complete"
        )
    if next(rows, None) is None:
        raise DataError(
            f"{named(path)}: a header and no rows of data, wanted rows of numbers; "
            "check that the file is complete"
        )
    for separator in (";", "\t", "|"):
        if len(first[1]) == 1 and separator in first[1][0]:
            raise DataError(
                f"{named(path)}: the header {shown(first[1][0])} has no commas and seems to be "
                f"separated by {separator!r}, wanted commas; save the file with commas"
            )
    return first


def check_width(where: str, line: int, row: list[str], width: int) -> None:
    """Raise `DataError` unless a row has as many fields as the header."""
    if len(row) != width:
        raise DataError(
            f"{where}: line {line} has {len(row)} field{'' if len(row) == 1 else 's'}, wanted "
            f"{width} as in the header; add or remove fields, and put quotes around text with "
            "commas"
        )


def _read_fast(path: Path, line: int, columns: int) -> np.ndarray | None:
    """Read all columns, float64 [N, K], after the header's last line `line`.

    Return None if anything is or may be wrong, and if there are quotes, where Arrow is not strict.
    """
    import pyarrow as pa
    import pyarrow.csv

    names = [str(position) for position in range(columns)]
    try:
        with path.open("rb") as stream:
            data = pyarrow.csv.read_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(skip_rows=line, column_names=names),
                parse_options=pyarrow.csv.ParseOptions(quote_char=False),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.float64())
                ),
            )
    except (pa.ArrowException, OSError, ValueError):
        return None
    if data.num_rows == 0:
        return None
    values = np.empty((data.num_rows, columns))
    for position, column in enumerate(data.columns):
        values[:, position] = column.to_numpy()
    clean = np.abs(values).max() < WHOLE_MAX  # 2^53 + 1 is read as 2^53; False with any NaN
    return values if clean else None


def _read_careful(
    path: Path, names: tuple[str, ...], target_column: int
) -> tuple[np.ndarray, bool]:
    """Read all columns, float64 [N, K], and whether the target is written as whole numbers."""
    where = named(path)
    values = array("d")
    faults: dict[str, _Fault] = {}
    whole = True
    rows = csv_rows(path)
    next(rows)
    for line, row in rows:
        check_width(where, line, row, len(names))
        plain = _plain_numbers(row)
        if plain is not None:
            values.extend(plain)
        else:
            for column, text in enumerate(row):
                number, kind = _parse_cell(text)
                values.append(number)
                if kind:
                    fault = faults.setdefault(kind, _Fault(line, column, text))
                    fault.count += 1
                    fault.columns.add(column)
        whole = whole and _is_whole(row[target_column])
    for kind, (what, todo) in _FAULTS.items():
        if kind in faults:
            raise DataError(_fault_message(where, names, faults[kind], what, todo))
    return np.array(values).reshape(-1, len(names)), whole


def _plain_numbers(row: list[str]) -> list[float] | None:
    """Return the numbers of a row, or None if a cell needs a closer look."""
    try:
        numbers = [float(text) for text in row]
    except ValueError:
        return None
    small = all(-WHOLE_MAX < number < WHOLE_MAX for number in numbers)
    return numbers if small and "_" not in "".join(row) else None


def _parse_cell(text: str) -> tuple[float, str]:
    """Return the number in a cell, and its fault: a key of `_FAULTS`, or an empty string."""
    try:
        number = float(text)
    except ValueError:
        return np.nan, "missing" if text.strip().lower() in MISSING else "text"
    if abs(number) < WHOLE_MAX:
        return number, "text" if "_" in text else ""
    if np.isnan(number):
        return number, "missing"
    if np.isinf(number):
        return number, "infinite" if "inf" in text.lower() else "large"
    if abs(number) > FLOAT32_MAX:
        return number, "large"
    return number, "digits" if _is_whole(text) and abs(int(text)) > WHOLE_MAX else ""


def _is_whole(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


def _fault_message(where: str, names: tuple[str, ...], fault: _Fault, what: str, todo: str) -> str:
    others = [names[column] for column in sorted(fault.columns - {fault.column})]
    also = f" (and in {quoted(others, 5)})" if others else ""
    return (
        f"{where}: {fault.count} cell{'' if fault.count == 1 else 's'} {what}, first "
        f"{shown(fault.text)} in column {shown(names[fault.column])}, line {fault.line}{also}, "
        f"wanted finite numbers; {todo}"
    )
