"""`Table`: the columns of a file or of a data frame as they are, before any is interpreted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from dgp_ppl.datasets._csv import csv_rows

__all__ = ["Column", "NumberColumn", "OtherColumn", "Table", "TextColumn"]


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column of numbers or of dates.

    Attributes:
        values: numbers, or days since 1970-01-01, float64 [N]; NaN where missing.
        is_date: whether they are dates.
        whole: whether they are stored or written as whole numbers.
        too_long: row of the first whole number that float64 cannot hold; None without one.
    """

    values: np.ndarray
    is_date: bool = False
    whole: bool = False
    too_long: int | None = None


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of texts: categories, or numbers and dates that have yet to be parsed.

    Attributes:
        texts: the different texts, without spaces around them.
        codes: position in `texts` of every row's text, [N]; -1 where missing.
        declared: whether the source says that the column holds categories or booleans.
    """

    texts: tuple[str, ...]
    codes: np.ndarray
    declared: bool = False


@dataclass(frozen=True, eq=False)
class OtherColumn:
    """A column that cannot be an input, such as one of lists.

    Attributes:
        kind: name of its type.
    """

    kind: str


Column = NumberColumn | TextColumn | OtherColumn


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file or of a data frame; `read_table` makes it.

    Attributes:
        where: the file or frame, for messages.
        columns: the columns by name.
        rows: number of each row in the source, from 0, [N].
        path: the file, if it has lines.
    """

    where: str
    columns: dict[str, Column]
    rows: np.ndarray
    path: Path | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    def take(self, rows: np.ndarray) -> Table:
        """Return a table of some rows: their positions in this table, or a mask."""
        columns = {name: _take(column, rows) for name, column in self.columns.items()}
        return replace(self, columns=columns, rows=self.rows[rows])

    def place(self, row: int) -> str:
        """Return where a row is in its source, for messages."""
        number = int(self.rows[row])
        if self.path is None:
            return f"row {number} (from 0)"
        line, _ = next(islice(csv_rows(self.path), number + 1, None), (None, None))
        return f"row {number} (from 0)" if line is None else f"line {line}"

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:8])) + (", ..." if len(self.names) > 8 else "")
        return f"Table({self.where}: {len(self):,} rows; {names})"


def _take(column: Column, rows: np.ndarray) -> Column:
    if isinstance(column, NumberColumn):
        positions = np.arange(len(column.values))[rows]
        found = np.flatnonzero(positions == column.too_long)
        too_long = int(found[0]) if len(found) else None
        return replace(column, values=column.values[rows], too_long=too_long)
    if isinstance(column, TextColumn):
        codes = column.codes[rows]
        used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(column.texts)))
        lookup = np.full(len(column.texts) + 1, -1)
        lookup[used] = np.arange(len(used))
        return replace(column, texts=tuple(column.texts[i] for i in used), codes=lookup[codes])
    return column
