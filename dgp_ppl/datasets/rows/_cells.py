"""`CellCheck`: refuses numbers of a source's rows that a fit cannot use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import (
    FILL_IN,
    FLOAT32_MAX,
    MISSING_CELL,
    OF_NEW_ROWS,
    TOO_LARGE,
    TOO_LONG,
    WHOLE_MAX,
    shown,
)

__all__ = ["CellCheck", "bad_cell", "first_bad"]


def first_bad(array: np.ndarray, limit: float, may_miss: bool) -> tuple[int, ...]:
    """Return the position of the first number beyond a limit, or NaN if none may miss; else ()."""
    bad = ~((array >= -limit) & (array <= limit))
    if may_miss:
        bad &= array == array  # not NaN
    return tuple(map(int, np.argwhere(bad)[0])) if bad.any() else ()


def bad_cell(column: str, value: np.generic, place: str, what: str) -> DataError:
    """Return the error about a number of a column; `what` is wrong with it if it is not missing."""
    what, todo = (what, OF_NEW_ROWS) if value == value else (MISSING_CELL, FILL_IN)
    return DataError(f"{column}: {value} in {place} {what}; {todo}")


@dataclass(frozen=True)
class CellCheck:
    """A check of inputs and targets when they are read, for `Rows.map`.

    NaN, infinity, numbers beyond `largest` and whole numbers beyond 2^53 are errors. NaN is none in
    targets that need not be `complete`.
    """

    where: str
    x_names: Sequence[str] | None = None
    y_name: str = "y"
    largest: float = FLOAT32_MAX
    complete: bool = True

    def check(self, arrays: Sequence[np.ndarray], place: Callable[[int], str]) -> None:
        """Raise `DataError` about the first bad number; `place` says where a row of arrays is."""
        for what, array in zip("xy", arrays, strict=False):
            is_float = array.dtype.kind == "f"
            limit, fault = (self.largest, TOO_LARGE) if is_float else (WHOLE_MAX, TOO_LONG)
            if at := first_bad(array, limit, what == "y" and not self.complete):
                name = f"the target {shown(self.y_name)}"
                if what == "x":
                    name = "column " + (
                        shown(self.x_names[at[1]]) if self.x_names else f"{at[1]} of x"
                    )
                raise bad_cell(f"{self.where}: {name}", array[at], place(at[0]), fault)
