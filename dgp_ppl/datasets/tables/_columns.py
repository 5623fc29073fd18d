"""One column of a `Preprocessor`: what training rows say about an input, or about the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._table import as_targets, file_task, quoted, shown, suggestion
from dgp_ppl.datasets.tables._kinds import Kind, infer, labels, numbers
from dgp_ppl.datasets.tables._table import NumberColumn, Table, TextColumn

__all__ = ["InputColumn", "TargetColumn", "fit_input", "fit_target", "format_value"]

MOST_CATEGORIES = 50
MOSTLY_DIFFERENT = 0.9  # the share of different texts from which on they are names


@dataclass(frozen=True)
class InputColumn:
    """A column of the table that becomes one or more inputs.

    Attributes:
        name: its name.
        kind: how to read it.
        fill: for missing cells: the training rows' median, or the position in `categories` of
            their most frequent category; None if missing cells are errors.
        varies: whether its numbers differ in the training rows. If they do not, only the indicator
            of missing cells is an input.
        missing: whether cells are missing in the training rows, so that an indicator is an input;
            for categories, whether ``missing`` is one of them.
        categories: the categories of the whole table, sorted.
    """

    name: str
    kind: Kind
    fill: float | None
    varies: bool = True
    missing: bool = False
    categories: tuple[str, ...] = ()

    def read(self, table: Table, unseen: str) -> np.ndarray:
        """Return the numbers of the column, or the positions of its categories, float64 [N].

        Missing numbers are NaN. A missing cell of a category has the position after the last
        category, or that of the most frequent one if no cell was missing in training. An unseen
        category has the position -1.

        Args:
            table: the rows.
            unseen: "error", or "zeros" to allow categories that are not among `categories`.
        """
        if self.kind.name != "category":
            return self._complete(table, numbers(table, self.name, self.kind))
        found, codes = labels(table, self.name, self.kind)
        known = {label: i for i, label in enumerate(self.categories)}
        new = [label for label in found if label not in known]
        if new and unseen == "error":
            todo = "or predict them as none of these categories (unseen='zeros', --unseen zeros)"
            raise _unseen(table, self.name, new, found, codes, self.categories, todo)
        missing = len(known) if self.missing else int(self.fill or 0)
        lookup = np.array([known.get(label, -1) for label in found] + [missing], float)
        return lookup[codes]

    def _complete(self, table: Table, values: np.ndarray) -> np.ndarray:
        """Return the numbers, or raise `DataError` if some are missing and there is no `fill`."""
        missing = np.isnan(values)
        if self.fill is None and missing.any():
            count, place = int(missing.sum()), table.place(int(missing.argmax()))
            raise DataError(
                f"{table.where}: column {shown(self.name)}: {count} cell{'s' * (count > 1)} "
                f"missing (empty or NaN), first in {place}, wanted numbers, as in the training "
                "data; fill the cells in, or leave these rows out"
            )
        return values


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict.

    Attributes:
        name: its name.
        kind: how to read it.
        task: "regression", "binary" or "multiclass".
        classes: the labels of the classes 0 ... C-1; empty for regression.
    """

    name: str
    kind: Kind
    task: str
    classes: tuple[str, ...] = ()

    def read(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets [N] and a mask [N] of the rows that have one.

        Without a target the value is NaN, or -1 for classes.
        """
        if self.kind.name != "category":
            values = numbers(table, self.name, self.kind)
            present = ~np.isnan(values)
            if self.task == "regression":
                return values, present
            y = np.where(present, values, -1)
            if not np.isin(y, (-1, 0, 1)).all():
                raise DataError(
                    f"{table.where}: the target {shown(self.name)} has other values than 0 and 1, "
                    "wanted the classes of the training data; correct the cells"
                )
            return as_targets(y, self.task), present
        found, codes = labels(table, self.name, self.kind)
        known = {label: i for i, label in enumerate(self.classes)}
        new = [label for label in found if label not in known]
        if new:
            todo = "or fit with such rows"
            raise _unseen(table, self.name, new, found, codes, self.classes, todo)
        lookup = np.array([known[label] for label in found] + [-1])
        return lookup[codes], codes >= 0


def fit_input(
    table: Table, training: Table, name: str, categorical: bool, whole: Table | None = None
) -> tuple[InputColumn | None, str]:
    """Learn a column from training rows.

    Args:
        table: the table. All its rows tell the kind of the column.
        training: its training rows, which tell everything but the kind and the categories.
        name: name of the column.
        categorical: whether its cells are categories in any case.
        whole: the rows that tell the categories; those of `table` by default.

    Returns:
        The column, and a note: why there is none, what was done, or an empty string.
    """
    kind = infer(table, name, categorical)
    if kind.name == "category":
        return _fit_categories(table if whole is None else whole, training, name, kind, categorical)
    values = numbers(training, name, kind, fitting=True)
    present = values[~np.isnan(values)]
    if not len(present):
        return None, "empty"
    varies = bool(present.min() < present.max())
    missing = len(present) < len(values)
    if not varies and not missing:
        return None, f"always {format_value(kind, present[0])}"
    return InputColumn(name, kind, _median(values), varies, missing), ""


def format_value(kind: Kind, value: float) -> str:
    """Format a number, or a date given in days since 1970-01-01."""
    if kind.name != "date":
        return f"{value:g}"
    seconds = np.datetime64(round(value * 86400), "s")
    return str(seconds).removesuffix("T00:00:00")


def _median(values: np.ndarray) -> float:
    from sklearn.impute import SimpleImputer

    imputer: Any = SimpleImputer(strategy="median").fit(values[:, None])
    return float(imputer.statistics_[0])


def _fit_categories(
    whole: Table, table: Table, name: str, kind: Kind, categorical: bool
) -> tuple[InputColumn | None, str]:
    """Learn the categories from the whole table, and all else from the training rows `table`."""
    found, codes = labels(table, name, kind, fitting=True)
    present = codes[codes >= 0]
    missing = len(present) < len(codes)
    if not len(present):
        return None, "empty"
    if len(found) == 1 and not missing:
        return None, f"always {shown(found[0])}"
    column = table.columns[name]
    declared = categorical or (isinstance(column, TextColumn) and column.declared)
    distinct = len(found) > 2 and len(found) >= MOSTLY_DIFFERENT * len(present)
    if not declared and (distinct or len(found) > MOST_CATEGORIES):
        return None, f"{len(found)} different texts in {len(present)} cells"
    known, _ = labels(whole, name, kind, fitting=True)
    fill = known.index(found[np.bincount(present).argmax()])
    return InputColumn(name, kind, float(fill), True, missing, known), ""


def fit_target(table: Table, name: str, categorical: bool) -> TargetColumn:
    """Learn the task, and the classes if there are any, from all rows with a target.

    Raises:
        DataError: if there are too many classes, or the target is the same in every row.
    """
    kind = infer(table, name, categorical)
    where, column = table.where, table.columns[name]
    if kind.name != "category":
        values = numbers(table, name, kind, fitting=True)
        present = values[~np.isnan(values)]
        whole = isinstance(column, NumberColumn) and column.whole
        if len(present) and present.min() == present.max():
            raise _constant(where, name, format_value(kind, present[0]))
        return TargetColumn(name, kind, file_task(present, whole) if len(present) else "regression")
    classes, codes = labels(table, name, kind, fitting=True)
    if len(classes) == 1:
        raise _constant(where, name, shown(classes[0]))
    declared = categorical or (isinstance(column, TextColumn) and column.declared)
    most = max(2, int((codes >= 0).sum()) // 2)
    if len(classes) > most or (not declared and len(classes) > MOST_CATEGORIES):
        raise DataError(
            f"{where}: the target {shown(name)} has {len(classes)} different texts in "
            f"{int((codes >= 0).sum())} rows, wanted numbers or a few classes; choose another "
            "target or correct its cells"
        )
    return TargetColumn(name, kind, "binary" if len(classes) == 2 else "multiclass", classes)


def _constant(where: str, name: str, value: str) -> DataError:
    return DataError(
        f"{where}: the target {shown(name)} is {value} in every row, wanted different values; "
        "choose another target or add rows that differ"
    )


def _unseen(
    table: Table, name: str, new: Sequence[str], found: tuple[str, ...], codes: np.ndarray,
    known: Sequence[str], todo: str,
) -> DataError:  # fmt: skip
    cells = np.isin(codes, [found.index(label) for label in new])
    row, count = int(cells.argmax()), int(cells.sum())
    first = found[codes[row]]
    hint = suggestion(first, known)
    return DataError(
        f"{table.where}: column {shown(name)}: {shown(first)} in {table.place(row)} is no category "
        f"of the training data{hint} ({count} such cell{'s' * (count > 1)}), "
        f"wanted {quoted(known)}; correct the cells, leave these rows out, {todo}"
    )
