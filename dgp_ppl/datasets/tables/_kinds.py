"""What columns hold: numbers, dates or categories; and their values of that kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._table import FLOAT32_MAX, TOO_LARGE, TOO_LONG, quoted, shown
from dgp_ppl.datasets.tables._cells import (
    DATE_ORDERS,
    canonical,
    has_decimal_comma,
    is_too_long,
    parse_date,
    parse_number,
)
from dgp_ppl.datasets.tables._table import NumberColumn, OtherColumn, Table, TextColumn

__all__ = ["Kind", "ambiguous_dates", "infer", "labels", "numbers"]

_OF_TRAINING = (
    "correct the cells, leave the column out (drop=..., --drop), or take its cells as categories "
    "(categorical=..., --categorical)"
)
_OF_NEW_ROWS = "correct the cells, or leave these rows out"


@dataclass(frozen=True)
class Kind:
    """How to read a column.

    Attributes:
        name: "number", "date" or "category".
        order: for dates, one of `DATE_ORDERS`.
        numeric: for categories, whether they are numbers; 3.0 is then the category "3".
    """

    name: str
    order: str = "year"
    numeric: bool = False


def infer(table: Table, name: str, categorical: bool = False) -> Kind:
    """Return what a column holds.

    Args:
        table: the table.
        name: name of the column.
        categorical: whether its cells are categories, even if they are numbers.

    Raises:
        DataError: if most cells are numbers, or dates, but some are not.
    """
    column = table.columns[name]
    if isinstance(column, OtherColumn):
        raise DataError(
            f"{table.where}: column {shown(name)} is of type {shown(column.kind)}, wanted numbers, "
            "dates, text or booleans; leave it out (drop=..., --drop)"
        )
    if isinstance(column, NumberColumn):
        if categorical and column.is_date:
            raise DataError(
                f"{table.where}: categorical has {shown(name)}, a column of dates; leave it out of "
                "categorical, or write the dates as text"
            )
        if categorical:
            return Kind("category", numeric=True)
        return Kind("date" if column.is_date else "number")
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
        _refuse(table, name, column, commas, "has a decimal comma", "numbers with a decimal point")
    for wanted, valid in (("numbers", are_numbers), *(("dates", v) for v in are_dates.values())):
        if _share(column, valid) > 0.5:
            _refuse(table, name, column, [not v for v in valid], f"is no {wanted[:-1]}", wanted)
    return Kind("category")


def ambiguous_dates(column: TextColumn) -> bool:
    """Return whether day and month of all dates could be exchanged."""
    return all(
        parse_date(text, order) is not None for text in column.texts for order in ("day", "month")
    )


def numbers(table: Table, name: str, kind: Kind, *, fitting: bool = False) -> np.ndarray:
    """Return the numbers or dates of a column, float64 [N], with NaN where cells are missing.

    Args:
        table: the table.
        name: name of the column.
        kind: what it holds.
        fitting: whether the column is learnt, so that it can be left out instead.

    Raises:
        DataError: if a cell is of another kind, infinite or too large.
    """
    column = table.columns[name]
    if isinstance(column, NumberColumn) and (
        column.is_date == (kind.name == "date") or np.isnan(column.values).all()
    ):  # a column without cells may have any type
        _check_size(table, name, column, fitting)
        return column.values
    if not isinstance(column, TextColumn):
        held = "dates" if isinstance(column, NumberColumn) and column.is_date else "no dates"
        held = f"type {shown(column.kind)}" if isinstance(column, OtherColumn) else held
        raise DataError(
            f"{table.where}: column {shown(name)} holds {held}, wanted {kind.name}s, as in the "
            "training data; convert the column"
        )
    parse: Callable[[str], float | None] = parse_number
    if kind.name == "date":
        parse = lambda text: parse_date(text, kind.order)  # noqa: E731
    parsed = [parse(text) for text in column.texts]
    if None in parsed:
        bad = [value is None for value in parsed]
        wanted = f"{kind.name}s, as in the training data"
        _refuse(table, name, column, bad, f"is no {kind.name}", wanted, _OF_NEW_ROWS)
    values = np.array([*parsed, np.nan], float)[column.codes]
    long = np.array([is_too_long(text) for text in column.texts] + [False])[column.codes]
    too_long = int(long.argmax()) if kind.name == "number" and long.any() else None
    _check_size(table, name, NumberColumn(values, too_long=too_long), fitting)
    return values


def labels(
    table: Table, name: str, kind: Kind, *, fitting: bool = False
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the different categories of a column, and the position of each row's; -1 if missing.

    Categories without rows are left out, and the others are sorted. The arguments are those of
    `numbers`.

    Raises:
        DataError: if the column is of a type that has no categories.
    """
    column = table.columns[name]
    if isinstance(column, TextColumn):
        texts, codes = [_label(text, kind.numeric) for text in column.texts], column.codes
    elif isinstance(column, NumberColumn) and (not column.is_date or np.isnan(column.values).all()):
        _check_size(table, name, column, fitting)
        present = ~np.isnan(column.values)
        values, found = np.unique(column.values[present], return_inverse=True)
        texts, codes = [canonical(v) for v in values], np.full(len(table), -1)
        codes[present] = found
    else:
        raise DataError(
            f"{table.where}: column {shown(name)} holds no text, wanted categories, as in the "
            "training data; convert the column"
        )
    used = sorted({texts[code] for code in np.flatnonzero(np.bincount(codes[codes >= 0]))})
    position = {text: i for i, text in enumerate(used)}
    lookup = np.array([position.get(text, -1) for text in texts] + [-1])
    return tuple(used), lookup[codes]


def _label(text: str, numeric: bool) -> str:
    """Return a category in one way of writing: ``true`` is ``True``, and ``3.0`` is ``3``."""
    if text.lower() in ("true", "false"):
        return text.capitalize()
    number = parse_number(text) if numeric else None
    return text if number is None or not np.isfinite(number) else canonical(number)


def _share(column: TextColumn, valid: list[bool]) -> float:
    """Return the share of the cells with a text that are valid."""
    present = column.codes[column.codes >= 0]
    return float(np.array(valid)[present].mean()) if len(present) else 0.0


def _refuse(
    table: Table, name: str, column: TextColumn, bad: list[bool], what: str, wanted: str,
    todo: str = _OF_TRAINING,
) -> None:  # fmt: skip
    """Raise `DataError` about the cells of a text column whose texts are bad."""
    cells = np.append(bad, False)[column.codes]
    row, count = int(cells.argmax()), int(cells.sum())
    others = dict.fromkeys(t for t, b in zip(column.texts, bad, strict=True) if b)
    first = column.texts[column.codes[row]]
    others.pop(first)
    more = f", and {quoted(others, 3)}" if others else ""
    raise DataError(
        f"{table.where}: column {shown(name)}: {shown(first)} in {table.place(row)} {what} "
        f"({count} such cell{'' if count == 1 else 's'}{more}), wanted {wanted}; {todo}"
    )


def _check_size(table: Table, name: str, column: NumberColumn, fitting: bool) -> None:
    """Raise `DataError` if a number is infinite, or too large for the fits."""
    values = np.abs(column.values)
    faults = (
        (np.isinf(values), "infinite", "correct the cells, or leave the column out"),
        (values > FLOAT32_MAX, *TOO_LARGE),
        (np.arange(len(values)) == column.too_long, *TOO_LONG),
    )
    for bad, what, todo in faults:
        if bad.any():
            row = int(bad.argmax())
            raise DataError(
                f"{table.where}: column {shown(name)}: {column.values[row]} in {table.place(row)} "
                f"is {what}, wanted finite numbers; "
                f"{f'{todo} (drop=..., --drop)' if fitting else _OF_NEW_ROWS}"
            )
