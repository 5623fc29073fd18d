"""What columns hold: numbers, dates or categories; and their values of that kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import quoted, shown
from dgp_ppl.datasets.tables._cells import (
    DATE_ORDERS,
    canonical,
    has_decimal_comma,
    is_too_long,
    parse_date,
    parse_number,
)
from dgp_ppl.datasets.tables._table import Column, Table

__all__ = ["FLOAT32_MAX", "Kind", "ambiguous_dates", "infer", "labels", "numbers"]

FLOAT32_MAX = float(np.finfo(np.float32).max)

_OF_TRAINING = (
    "correct the cells, leave the column out (drop=..., --drop), or take its cells as categories "
    "(categorical=..., --categorical)"
)
_OF_NEW_ROWS = "correct the cells, or leave these rows out"


@dataclass(frozen=True)
class Kind:
    """How to read a column."""

    name: str  # "number", "date" or "category"
    order: str = "year"  # of dates, one of `DATE_ORDERS`
    numeric: bool = False  # of categories: 3.0 is then the category "3"


def infer(table: Table, name: str, categorical: bool = False) -> Kind:
    """Return what a column holds; refuse numbers or dates of which some cells are not."""
    column = table.columns[name]
    if column.kind not in ("number", "date", "text"):
        raise DataError(
            f"{table.where}: column {shown(name)} is of type {shown(column.kind)}, wanted numbers, "
            "dates, text or booleans; leave it out (drop=..., --drop)"
        )
    if column.kind == "date" and categorical:
        raise DataError(
            f"{table.where}: categorical has {shown(name)}, a column of dates; leave it out of "
            "categorical, or write the dates as text"
        )
    if column.kind != "text":
        return Kind("category", numeric=True) if categorical else Kind(column.kind)
    are_numbers = [parse_number(text) is not None for text in column.texts]
    if categorical or column.declared:
        return Kind("category", numeric=all(are_numbers))
    if all(are_numbers):
        return Kind("number")
    are_dates = {
        order: [parse_date(text, order) is not None for text in column.texts]
        for order in DATE_ORDERS
    }
    for order in ("year", "month", "day"):  # month first if both fit, and a warning
        if all(are_dates[order]):
            return Kind("date", order=order)
    commas = [has_decimal_comma(text) for text in column.texts]
    if any(commas) and all(a or b for a, b in zip(are_numbers, commas, strict=True)):
        wanted = f"numbers with a decimal point; {_OF_TRAINING}"
        raise _bad_cells(table, name, commas, "has a decimal comma", wanted)
    present = column.values[column.values >= 0]
    for wanted, valid in (("numbers", are_numbers), *(("dates", v) for v in are_dates.values())):
        if len(present) and np.array(valid)[present].mean() > 0.5:
            bad = [not v for v in valid]
            raise _bad_cells(table, name, bad, f"is no {wanted[:-1]}", f"{wanted}; {_OF_TRAINING}")
    return Kind("category")


def ambiguous_dates(column: Column) -> bool:
    """Return whether day and month of all dates could be exchanged."""
    return all(
        parse_date(text, order) is not None for text in column.texts for order in ("day", "month")
    )


def numbers(table: Table, name: str, kind: Kind, *, fitting: bool = False) -> np.ndarray:
    """Return the numbers or dates of a column, float64 [N], with NaN where cells are missing.

    If the column is learnt (`fitting`), messages say how to leave it out.
    """
    column = table.columns[name]
    values = column.values
    todo = _OF_TRAINING if fitting else _OF_NEW_ROWS
    if column.kind == "text":
        parse: Callable[[str], float | None] = parse_number
        if kind.name == "date":
            parse = partial(parse_date, order=kind.order)
        parsed = [parse(text) for text in column.texts]
        if None in parsed:
            bad = [value is None for value in parsed]
            wanted = f"{kind.name}s; {todo}"
            raise _bad_cells(table, name, bad, f"is no {kind.name}", wanted)
        if kind.name == "number" and any(bad := [is_too_long(text) for text in column.texts]):
            what = "is a whole number beyond 2^53, where float64 loses digits"
            raise _bad_cells(table, name, bad, what, f"fewer digits; {todo}")
        values = np.array([*parsed, np.nan], float)[values]
    elif column.kind != kind.name and not _is_empty(column):  # without cells it may have any type
        is_known = column.kind in ("number", "date")
        held = f"{column.kind}s" if is_known else f"type {shown(column.kind)}"
        raise DataError(
            f"{table.where}: column {shown(name)} holds {held}, wanted {kind.name}s, as in the "
            "training data; convert the column"
        )
    too_large = np.abs(values) > FLOAT32_MAX
    if too_large.any():
        row = int(too_large.argmax())
        raise DataError(
            f"{table.where}: column {shown(name)}: {values[row]} in {table.place(row)} is infinite "
            "or beyond the range of float32 (3.4e38), which fits use, wanted finite numbers; "
            f"{todo}"
        )
    return values


def labels(
    table: Table, name: str, kind: Kind, *, fitting: bool = False
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the categories of a column, sorted, and each row's position in them; -1 if missing."""
    column = table.columns[name]
    if column.kind == "text":
        texts, codes = [_label(text, kind.numeric) for text in column.texts], column.values
    elif column.kind == "number" or _is_empty(column):
        values = numbers(table, name, Kind(column.kind), fitting=fitting)
        found, codes = np.unique(values, return_inverse=True, equal_nan=True)
        texts = [canonical(v) for v in found if not np.isnan(v)]
        codes = np.where(np.isnan(values), -1, codes)
    else:
        raise DataError(
            f"{table.where}: column {shown(name)} holds no text, wanted categories, as in the "
            "training data; convert the column"
        )
    used = {text: i for i, text in enumerate(sorted(set(texts)))}
    lookup = np.array([used[text] for text in texts] + [-1])
    return tuple(used), lookup[codes]


def _is_empty(column: Column) -> bool:
    return column.kind in ("number", "date") and bool(np.isnan(column.values).all())


def _label(text: str, numeric: bool) -> str:
    """Return a category in one way of writing: ``true`` is ``True``, and ``3.0`` is ``3``."""
    if text.lower() in ("true", "false"):
        return text.capitalize()
    number = parse_number(text) if numeric and not is_too_long(text) else None
    return text if number is None or not np.isfinite(number) else canonical(number)


def _bad_cells(table: Table, name: str, bad: Sequence[bool], what: str, wanted: str) -> DataError:
    """Return the error about the cells of a text column whose texts are bad."""
    column = table.columns[name]
    cells = np.append(bad, False)[column.values]
    row, count = int(cells.argmax()), int(cells.sum())
    first = column.texts[column.values[row]]
    others = [t for t, b in zip(column.texts, bad, strict=True) if b and t != first]
    more = f", and {quoted(others, 3)}" if others else ""
    return DataError(
        f"{table.where}: column {shown(name)}: {shown(first)} in {table.place(row)} {what} "
        f"({count} such cell{'s' * (count != 1)}{more}), wanted {wanted}"
    )
