"""`Table`: the columns of a file or of a data frame as they are, before any is interpreted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from dgp_ppl.datasets.tables._csv import csv_rows

__all__ = ["Column", "Table"]


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
        line, _ = next(islice(csv_rows(self.path), number + 1, None), (None, None))
        return f"row {number} (from 0)" if line is None else f"line {line}"

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:8])) + ", ..." * (len(self.names) > 8)
        return f"Table({self.where}: {len(self):,} rows; {names})"
