"""One column of a `Preprocessor`: what training rows say about an input, or about the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import quoted, shown, suggestion
from dgp_ppl.datasets.tables._kinds import Kind, infer, labels, numbers
from dgp_ppl.datasets.tables._table import Table

__all__ = ["InputColumn", "TargetColumn", "fit_input", "fit_target", "format_value"]

_MOST_CATEGORIES = 50
_MOSTLY_DIFFERENT = 0.9  # the share of different texts from which on they are names


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
        """Return the numbers of the column, NaN where missing, or the positions of its categories.

        An unseen category is an error, or the position -1 if `unseen` is "zeros".
        """
        if self.kind.name != "category":
            values = numbers(table, self.name, self.kind)
            missing = np.isnan(values)
            if self.fill is None and missing.any():
                count, place = int(missing.sum()), table.place(int(missing.argmax()))
                raise DataError(
                    f"{table.where}: column {shown(self.name)}: {count} cell{'s' * (count > 1)} "
                    f"missing (empty or NaN), first in {place}, wanted numbers; fill the cells in, "
                    "or leave these rows out"
                )
            return values
        todo = "or predict them as none of these categories (unseen='zeros', --unseen zeros)"
        codes = _codes(table, self.name, self.kind, self.categories, todo * (unseen == "error"))
        missing = len(self.categories) if self.missing else int(self.fill or 0)
        return np.where(codes == len(self.categories), missing, codes)


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict."""

    name: str
    kind: Kind
    task: str  # "regression", "binary" or "multiclass"
    classes: tuple[str, ...] = ()  # labels of the classes 0 ... C-1

    def read(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets [N], NaN or -1 where missing, and which rows have one, [N]."""
        if self.kind.name == "category":
            y = _codes(table, self.name, self.kind, self.classes, "or fit with such rows")
            present = y < len(self.classes)
            return np.where(present, y, -1), present
        values = numbers(table, self.name, self.kind)
        present = ~np.isnan(values)
        if self.task == "regression":
            return values, present
        y = np.where(present, values, -1).astype(np.int64)
        if not np.isin(values[present], (0, 1)).all():
            raise DataError(
                f"{table.where}: the target {shown(self.name)} has other values than 0 and 1, "
                "wanted the classes of the training data; correct the cells"
            )
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
        row, count = int(unseen.argmax()), int(unseen.sum())
        first = found[codes[row]]
        raise DataError(
            f"{table.where}: column {shown(name)}: {shown(first)} in {table.place(row)} is no "
            f"category of the training data{suggestion(first, known)} "
            f"({count} such cell{'s' * (count > 1)}), wanted {quoted(known)}; correct the cells, "
            f"leave these rows out, {todo}"
        )
    return positions


def fit_input(
    table: Table, training: Table, name: str, categorical: bool, whole: Table
) -> tuple[InputColumn | None, str]:
    """Learn a column from training rows; return it, or None and why it is no input.

    The rows with a target, `table`, tell the kind; `whole`, which has all rows, the categories.
    """
    kind = infer(table, name, categorical)
    if kind.name != "category":
        values = numbers(training, name, kind, fitting=True)
        present = values[~np.isnan(values)]
        if not len(present):
            return None, "empty"
        varies, missing = bool(present.min() < present.max()), len(present) < len(values)
        if not varies and not missing:
            return None, f"always {format_value(kind, present[0])}"
        return InputColumn(name, kind, float(np.median(present)), varies, missing), ""
    found, codes = labels(training, name, kind, fitting=True)
    present = codes[codes >= 0]
    missing = len(present) < len(codes)
    if not len(present):
        return None, "empty"
    if len(found) == 1 and not missing:
        return None, f"always {shown(found[0])}"
    are_names = len(found) > 2 and len(found) >= _MOSTLY_DIFFERENT * len(present)
    declared = categorical or table.columns[name].declared
    if not declared and (are_names or len(found) > _MOST_CATEGORIES):
        return None, f"{len(found)} different texts in {len(present)} cells"
    known, _ = labels(whole, name, kind, fitting=True)
    fill = known.index(found[np.bincount(present).argmax()])
    return InputColumn(name, kind, float(fill), True, missing, known), ""


def format_value(kind: Kind, value: float) -> str:
    """Format a number, or a date given in days since 1970-01-01."""
    if kind.name != "date":
        return f"{value:g}"
    return str(np.datetime64(round(value * 86400), "s")).removesuffix("T00:00:00")


def fit_target(table: Table, name: str, categorical: bool) -> TargetColumn:
    """Learn the task, and the classes if there are any, from all rows with a target."""
    kind = infer(table, name, categorical)
    where, column = table.where, table.columns[name]
    classes: tuple[str, ...] = ()
    if kind.name == "category":
        classes, codes = labels(table, name, kind, fitting=True)
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
        values = np.unique(numbers(table, name, kind, fitting=True))
        values = values[~np.isnan(values)]
        constant = format_value(kind, values[0]) if len(values) == 1 else ""
        task = "binary" if column.whole and np.array_equal(values, (0, 1)) else "regression"
    if constant:
        raise DataError(
            f"{where}: the target {shown(name)} is {constant} in every row, wanted different "
            "values; choose another target or add rows that differ"
        )
    return TargetColumn(name, kind, task, classes)
