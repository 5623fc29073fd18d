"""The columns of a table as numbers, dates or categories, and what training rows say of them."""

from __future__ import annotations

import datetime
import decimal
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import (
    FLOAT32_MAX,
    OF_NEW_ROWS,
    TOO_LARGE,
    TOO_LONG,
    WHOLE_MAX,
    constant_target,
    quoted,
    shown,
    suggestion,
)
from dgp_ppl.datasets._read import DAY_MICROSECONDS, Table, is_missing

_MOST_CATEGORIES = 50
_MOSTLY_DIFFERENT = 0.9  # the share of different texts from which on they are names
_MIXED = 0.25  # the share of numbers or dates from which on a column of text is suspect
_OF_INPUTS = (
    "correct the cells, leave these rows out, or fit without the column (drop=..., --drop), or "
    "with its cells as categories (categorical=..., --categorical)"
)
_OF_TARGETS = (
    "correct the cells, leave these rows out, or take all as classes (categorical=..., "
    "--categorical)"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(?![1-9]\d{0,2},\d{3}$)\d+,\d+")
_PLAIN = re.compile(r"[+-]?0*(\d*)(\.\d*)?")
_PADDED = re.compile(r"[+-]?0\d")  # a code such as 007, which differs from the number 7
_PARTS = {"y": r"(?P<y>\d{4})", "m": r"(?P<m>\d{1,2})", "d": r"(?P<d>\d{1,2})"}
_TIME = r"(?:[T ]\s*(?P<time>\d.*))?"
_DATES = {
    order: re.compile(f"{_PARTS[a]}(?P<sep>[{separators}]){_PARTS[b]}(?P=sep){_PARTS[c]}{_TIME}")
    for order, (a, b, c), separators in (
        ("year", "ymd", "-/."), ("day", "dmy", "-/."), ("month", "mdy", "-/"),
    )
}  # fmt: skip


def parse_number(text: str) -> float | None:
    """Return the number of a text such as ``1,421.48``; NaN if missing; None for ``0,532``."""
    if is_missing(text):
        return np.nan
    if "_" in text:  # a number for Python alone
        return None
    try:
        return float(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return None


def _is_too_long(text: str) -> bool:
    """Return whether a number beyond 2^53 is whole, or has digits that float64 loses."""
    match = _PLAIN.fullmatch(text.replace(",", ""))
    if match is None or (len(match[1]) <= 16 and int(match[1] or 0) <= WHOLE_MAX):
        return False
    return not match[2] or decimal.Decimal(match[0]) != decimal.Decimal(float(match[0]))


def parse_date(text: str, order: str) -> float | None:
    """Return the days from 1970-01-01 (UTC) to a date; NaN if missing; None for other texts.

    `order` says what dates start with: "year" (2024-03-31), "day" (31/03/2024) or "month".
    """
    if is_missing(text):
        return np.nan
    match = _DATES[order].fullmatch(text)
    if match is None:
        return None
    try:
        date = datetime.date(*(int(match[part]) for part in "ymd"))
        time = datetime.time.fromisoformat(match["time"] or "00:00")
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    since = datetime.datetime.combine(date, time) - _EPOCH
    return since / datetime.timedelta(microseconds=1) / DAY_MICROSECONDS


def _canonical(number: float) -> str:
    """Return the text of a number as a category: whole numbers have no decimal point."""
    return str(int(number)) if number == int(number) else repr(float(number))


@dataclass(frozen=True)
class Kind:
    """How to read a column."""

    name: str  # "number", "date" or "category"
    order: str = "year"  # of dates, one of the orders of `parse_date`
    numeric: bool = False  # of categories: 3.0 is then the category "3"

    def parse(self, text: str) -> float | None:
        """Return the number or date in a text; NaN if missing; None for other texts."""
        return parse_number(text) if self.name == "number" else parse_date(text, self.order)


# Month first if both fit, and a warning.
_OF_TEXTS = (Kind("number"), *(Kind("date", order) for order in ("year", "month", "day")))


def infer(
    table: Table, name: str, categorical: bool = False, todo: str = _OF_INPUTS
) -> tuple[Kind, str]:
    """Return what a column holds, and a warning if it is text with many numbers or dates.

    A column of numbers or dates of which some cells are not is an error. `todo` says what to do
    about these cells.
    """
    column = table.columns[name]
    if column.kind != "text":
        name = "category" if categorical else "date" if column.kind == "date" else "number"
        return Kind(name, numeric=categorical), ""
    if categorical or column.declared:
        codes = (parse_number(t) is None or _PADDED.match(t) for t in column.texts)
        return Kind("category", numeric=not any(codes)), ""
    kinds, present = {}, column.values >= 0
    for kind in _OF_TEXTS:
        kinds[kind] = column.passing(lambda text, kind=kind: kind.parse(text) is not None)
        if (kinds[kind] == present).all():
            return kind, ""
    kind, fits = max(kinds.items(), key=lambda found: found[1].sum())  # the first of equals
    bad, share = present & ~fits, fits.sum() / present.sum()
    commas = column.passing(_DECIMAL_COMMA.fullmatch)
    if commas.any() and kind.name == "number" and (bad <= commas).all():
        wanted = f"numbers with a decimal point; {todo}"
        raise _bad_cells(table, name, commas, "has a decimal comma", wanted)
    if share > 0.5:
        raise _bad_cells(table, name, bad, f"is no {kind.name}", f"{kind.name}s; {todo}")
    if share < _MIXED:
        return Kind("category"), ""
    one, other = (f"{column.cell(r)} in {table.place(r)}" for r in (fits.argmax(), bad.argmax()))
    return Kind("category"), (
        f"column {shown(name)}: {fits.sum()} of {present.sum()} cells are {kind.name}s, such as "
        f"{one}, and others cannot be read so, such as {other}: all are taken as text; correct the "
        "cells, or say that they are categories (categorical=..., --categorical)"
    )


def _numbers(table: Table, name: str, kind: Kind, todo: str = OF_NEW_ROWS) -> np.ndarray:
    """Return the numbers or dates of a column, float64 [N], with NaN where cells are missing."""
    column = table.columns[name]
    values = column.values
    if column.kind == "text":
        parsed = [kind.parse(text) for text in column.texts]
        if None in parsed:
            bad = column.passing(lambda text: kind.parse(text) is None)
            raise _bad_cells(table, name, bad, f"is no {kind.name}", f"{kind.name}s; {todo}")
        if kind.name == "number" and (long := column.passing(_is_too_long)).any():
            raise _bad_cells(table, name, long, TOO_LONG, f"fewer digits; {todo}")
        values = np.array([*parsed, np.nan], float)[values]
    elif not column.can_be(kind.name):
        raise _wrong_type(table, name, f"{kind.name}s")
    if (large := np.abs(values) > FLOAT32_MAX).any():
        raise _bad_cells(table, name, large, TOO_LARGE, f"finite numbers; {todo}")
    return values


def labels(table: Table, name: str, kind: Kind) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the categories of a column, sorted, and each row's position in them; -1 if missing."""
    column = table.columns[name]
    if column.kind == "text":
        texts, codes = [_label(text, kind.numeric) for text in column.texts], column.values
    elif column.can_be("number"):
        values = _numbers(table, name, Kind("number"))
        found, codes = np.unique(values, return_inverse=True, equal_nan=True)
        texts = [_canonical(v) for v in found if not np.isnan(v)]
        codes = np.where(np.isnan(values), -1, codes)
    else:
        raise _wrong_type(table, name, "text, booleans or whole numbers")
    used = {text: i for i, text in enumerate(sorted(set(texts)))}
    lookup = np.array([used[text] for text in texts] + [-1])
    return tuple(used), lookup[codes]


def _wrong_type(table: Table, name: str, wanted: str) -> DataError:
    kind = table.columns[name].kind
    held = f"{kind}s" if kind in ("number", "date") else f"values of type {shown(kind)}"
    return DataError(
        f"{table.where}: column {shown(name)} holds {held}, wanted {wanted}; convert the column, "
        "or leave it out (drop=..., --drop)"
    )


def _label(text: str, numeric: bool) -> str:
    """Return a category in one way of writing: ``true`` is ``True``, and ``3.0`` is ``3``."""
    if text.lower() in ("true", "false"):
        return text.capitalize()
    number = parse_number(text) if numeric and not _is_too_long(text) else None
    return text if number is None or not np.isfinite(number) else _canonical(number)


def _bad_cells(
    table: Table, name: str, bad: np.ndarray, what: str, wanted: str, about: str = "column"
) -> DataError:
    """Return the error about the rows of a column that a mask marks."""
    column = table.columns[name]
    row, count = int(bad.argmax()), int(bad.sum())
    first, others = column.cell(row), []
    if column.kind == "text":
        codes = np.unique(column.values[bad])
        others = [column.texts[code] for code in codes if code not in (-1, column.values[row])]
    more = f", and {quoted(others, 3)}" if others else ""
    return DataError(
        f"{table.where}: {about} {shown(name)}: {first} in {table.place(row)} {what} "
        f"({count} such cell{'s' * (count != 1)}{more}), wanted {wanted}"
    )


@dataclass(frozen=True)
class InputColumn:
    """A column of the table that becomes one or more inputs."""

    name: str
    kind: Kind
    # For missing cells: the training rows' median, or the position of their most frequent category;
    # None if missing cells are errors.
    fill: float | None
    varies: bool = True  # in the training rows; else only the indicator of missing cells is input
    missing: bool = False  # in training rows, so there is an indicator, or a category of its own
    categories: tuple[str, ...] = ()  # of the whole table, sorted

    @property
    def size(self) -> int:
        """Number of categories, of which a missing cell may be one; 0 of numbers and dates."""
        return len(self.categories) + self.missing if self.kind.name == "category" else 0

    def read(self, table: Table, unseen: str = "error") -> np.ndarray:
        """Return numbers, NaN where missing, or positions of categories; -1 for new ones."""
        if self.kind.name != "category":
            values = _numbers(table, self.name, self.kind)
            missing = np.isnan(values)
            if self.fill is None and missing.any():
                wanted = "numbers; fill the cells in, or leave these rows out"
                raise _bad_cells(table, self.name, missing, "is missing", wanted)
            self._warn(table, missing, "median")
            return values
        todo = "or predict them as none of these categories (unseen='zeros', --unseen zeros)"
        codes = _codes(table, self.name, self.kind, self.categories, todo * (unseen == "error"))
        missing = codes == len(self.categories)
        self._warn(table, missing, "most frequent category")
        return np.where(missing & (not self.missing), int(self.fill or 0), codes)

    def _warn(self, table: Table, missing: np.ndarray, fill: str) -> None:
        """Warn of missing cells of a column that has none in the training rows."""
        if (count := int(missing.sum())) and not self.missing:
            warnings.warn(
                f"{table.where}: column {shown(self.name)} has {count} missing "
                f"cell{'s' * (count > 1)}, the first in {table.place(int(missing.argmax()))}, and "
                f"none in the training rows: their {fill} stands for it, with no wider intervals",
                stacklevel=4,
            )


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict."""

    name: str
    kind: Kind
    task: str  # "regression", "binary" or "multiclass"
    classes: tuple[str, ...] = ()  # labels of the classes 0 ... C-1

    def read(self, table: Table, complete: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return targets, NaN or -1 where missing, if not `complete`, and where they are, [N]."""
        if self.kind.name == "category":
            y = _codes(table, self.name, self.kind, self.classes, "or fit with such rows")
            present = y < len(self.classes)
            y = np.where(present, y, -1)
        else:
            y = _numbers(table, self.name, self.kind)
            present = ~np.isnan(y)
        if complete and not present.all():
            wanted = "a target in every row; leave these rows out"
            raise _bad_cells(table, self.name, ~present, "is missing", wanted, "the target")
        if self.task == "binary" and self.kind.name != "category":
            if (other := present & (y != 0) & (y != 1)).any():
                wanted = f"the classes of the training data; {OF_NEW_ROWS}"
                what = "is neither 0 nor 1"
                raise _bad_cells(table, self.name, other, what, wanted, "the target")
            y = np.where(present, y, -1).astype(np.int64)
        return y, present


def _codes(table: Table, name: str, kind: Kind, known: Sequence[str], todo: str) -> np.ndarray:
    """Return the position of each row's category in `known`; `len(known)` if its cell is missing.

    Other categories have -1; they are an error if there is something `todo` about them.
    """
    found, codes = labels(table, name, kind)
    position = {label: i for i, label in enumerate(known)}
    positions = np.array([position.get(label, -1) for label in found] + [len(known)])[codes]
    unseen = positions < 0
    if unseen.any() and todo:
        first = found[codes[unseen.argmax()]]
        what = f"is no category of the training data{suggestion(first, known)}"
        wanted = f"{quoted(known)}; correct the cells, leave these rows out, {todo}"
        raise _bad_cells(table, name, unseen, what, wanted)
    return positions


def fit_input(
    whole: Table, training: Table, name: str, kind: Kind, categorical: bool
) -> tuple[InputColumn | None, str]:
    """Learn a column from training rows, its categories from the whole table; or None, and why."""
    if kind.name != "category":
        values = _numbers(training, name, kind, _OF_INPUTS)
        present = values[~np.isnan(values)]
        if not len(present):
            return None, "empty"
        varies, missing = bool(present.min() < present.max()), len(present) < len(values)
        if not varies and not missing:
            return None, f"always {format_value(kind, present[0])}"
        return InputColumn(name, kind, float(np.median(present)), varies, missing), ""
    found, codes = labels(training, name, kind)
    present = codes[codes >= 0]
    missing = len(present) < len(codes)
    if not len(present):
        return None, "empty"
    if len(found) == 1 and not missing:
        return None, f"always {shown(found[0])}"
    are_names = len(found) > 2 and len(found) >= _MOSTLY_DIFFERENT * len(present)
    declared = categorical or whole.columns[name].declared
    if not declared and (are_names or len(found) > _MOST_CATEGORIES):
        return None, f"{len(found)} different texts in {len(present)} cells"
    known, _ = labels(whole, name, kind)
    fill = known.index(found[np.bincount(present).argmax()])
    return InputColumn(name, kind, float(fill), True, missing, known), ""


def format_value(kind: Kind, value: float) -> str:
    """Format a number, or a date given in days since 1970-01-01."""
    if kind.name != "date":
        return f"{value:g}"
    return str(np.datetime64(round(value * 86400), "s")).removesuffix("T00:00:00")


def fit_target(table: Table, name: str, categorical: bool, todo: str = _OF_TARGETS) -> TargetColumn:
    """Learn the task, and the classes if there are any, from all rows with a target."""
    kind, _ = infer(table, name, categorical, todo)
    where, column = table.where, table.columns[name]
    classes: tuple[str, ...] = ()
    if kind.name == "category":
        classes, codes = labels(table, name, kind)
        constant = shown(classes[0]) if len(classes) == 1 else ""
        rows = int((codes >= 0).sum())
        most = max(2, rows // 2)
        if not (categorical or column.declared):
            most = min(most, _MOST_CATEGORIES)
        if len(classes) > most:
            raise DataError(
                f"{where}: the target {shown(name)} has {len(classes)} different texts in {rows} "
                "rows, wanted numbers or a few classes; choose another target or correct its cells"
            )
        task = "binary" if len(classes) == 2 else "multiclass"
    else:
        values = np.unique(_numbers(table, name, kind))
        values = values[~np.isnan(values)]
        constant = format_value(kind, values[0]) if len(values) == 1 else ""
        task = "binary" if column.whole and np.array_equal(values, (0, 1)) else "regression"
    if constant:
        raise constant_target(where, name, constant)
    return TargetColumn(name, kind, task, classes)
