"""`Preprocessor`: numbers, dates, text and missing cells of a table as inputs of a model."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._arrow import ArrowFrame
from dgp_ppl.datasets._columns import InputColumn, Kind, TargetColumn, fit_input, fit_target, infer
from dgp_ppl.datasets._messages import quoted, shown, suggestion
from dgp_ppl.datasets._read import Table, read_table
from dgp_ppl.datasets._report import Report, describe

_FORMAT, _VERSION = "dgp_ppl.Preprocessor", 1

Source = str | os.PathLike[str] | ArrowFrame | Table


@dataclass(frozen=True, repr=False)
class Preprocessor:
    """A map from the columns of a table to inputs [N, D] and targets [N].

    Create it with `fit`, from the training rows, and keep it with the fit: new rows must pass
    through the same map. A `Standardizer` comes after it.

    - Numbers stay as they are. Text of numbers, such as ``1,421.48``, becomes numbers.
    - Dates become days since 1970-01-01 (UTC), with the time of day as a fraction.
    - Text and booleans become one input of 0 and 1 for each category; two categories share one
      input. Columns of many different texts, such as names, are left out, with a warning: more than
      50 categories, or 90 % of the cells different.
    - Missing numbers and dates become the training rows' median, and an input that is 1 where they
      were missing. Missing text is a category. Cells that are only missing in new rows become the
      median, or the most frequent category.
    - Columns that are constant in the training rows are left out.
    - A target of text or booleans becomes the classes 0 ... C-1, in sorted order. One stored as
      whole numbers that are all 0 or 1 is binary, and other numbers are for regression.

    Attributes:
        columns: the columns of the table that become inputs.
        target: the column to predict; None without one.
        report: what was done.
    """

    columns: tuple[InputColumn, ...]
    target: TargetColumn | None = None
    report: Report = field(default=Report(""), compare=False)

    @classmethod
    def fit(
        cls,
        source: Source,
        target: str | None = None,
        *,
        rows: Any = None,
        drop: str | Sequence[str] = (),
        categorical: str | Sequence[str] = (),
    ) -> Preprocessor:
        """Learn the map from training rows.

        The whole table tells which columns are numbers, dates or text, the categories, and the
        classes of the target: names, which say nothing about a row's target. The training rows
        alone tell the values for missing cells and what is constant. Those without a target are
        left out.

        >>> import pyarrow as pa
        >>> from dgp_ppl.datasets import Preprocessor
        >>> houses = pa.table({
        ...     "area": ["1,421.5", "950", None, "800"],
        ...     "sold": ["2024-01-31", "2024-01-31", "2024-01-31", "2024-02-01"],
        ...     "colour": ["red", "blue", "red", "green"],
        ...     "price": [4.0, 3.0, 2.5, None],
        ... })
        >>> columns = Preprocessor.fit(houses, "price", rows=[0, 1, 2])
        >>> print(columns.report)
        pyarrow Table: 3 training rows, 4 columns -> 5 inputs
          numbers     area
          categories  colour: blue, green, red (green in other rows alone)
          missing     area: 1 cell -> 1185.75, and an input that marks them
          left out    sold: always 2024-01-31
          left out    1 row without a target
          target      price (regression)
        >>> columns.inputs(houses)[[0, 2]].tolist()
        [[1421.5, 0.0, 0.0, 1.0, 0.0], [1185.75, 0.0, 0.0, 1.0, 1.0]]

        Args:
            source: a .csv (UTF-8, commas, a header) or .parquet file, or a frame of pandas,
                polars, PyArrow or another library with Arrow's PyCapsule interface.
            target: the column to predict; None if all columns are inputs.
            rows: positions of the training rows, or a mask; None for all rows.
            drop: columns to leave out.
            categorical: columns of numbers to take as categories. With the target in it, its
                numbers are classes.

        Returns:
            The preprocessor. Its `report` says what was done. Its warnings are also given as
            Python warnings.

        Raises:
            DataError: if a column is unknown or cannot be used, or no input is left.
        """
        table = read_table(source, texts=_tuple(categorical))
        fitted = learn(table, target, rows, drop, categorical)
        for text in fitted.report.warnings:
            warnings.warn(f"{table.where}: {text}", stacklevel=2)
        return fitted

    def inputs(self, source: Source, *, unseen: str = "error") -> np.ndarray:
        """Return the inputs of a table's rows, float64 [N, D].

        Columns that the training data do not have are ignored.

        Args:
            source: a file or a data frame.
            unseen: what to do about categories that the table of `fit` does not have: "error",
                or "zeros", where all inputs of the column are 0. With two categories, 0 is also
                the first of them.

        Raises:
            DataError: if a column is missing or has other cells than in training, or a category is
                unseen, or `unseen` is neither.

        Warns:
            UserWarning: if cells are missing in a column that had all of them in training.
        """
        if unseen not in ("error", "zeros"):
            raise DataError(f"predict: unseen is {unseen!r}, wanted 'error' or 'zeros'")
        table = read_table(source, texts=self.text_columns)
        missing = [c.name for c in self.columns if c.name not in table.columns]
        if missing:
            hint = suggestion(missing[0], table.names)
            raise DataError(
                f"{table.where}: no column {quoted(missing)}{hint}, wanted the columns of the "
                f"training data; the columns are {quoted(table.names)}"
            )
        read = {column.name: column.read(table, unseen) for column in self.columns}
        x = np.empty((len(table), len(self._parts)))
        for j, (_, column, part) in enumerate(self._parts):
            cells = read[column.name]
            if part == "value":
                x[:, j] = np.where(np.isnan(cells), column.fill or 0.0, cells)
            else:
                x[:, j] = np.isnan(cells) if part == "missing" else cells == part
        return x

    def targets(self, source: Source) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of a table's rows, and which rows have one.

        Args:
            source: a file or a data frame.

        Returns:
            A pair of the targets [N], float64 or the classes 0 ... C-1 as int64, and a mask [N].
            Without a target, the value is NaN, or -1 for classes.

        Raises:
            DataError: if there is no target, or a class is unseen.
        """
        goal = self._goal
        table = read_table(source)
        if goal.name not in table.columns:
            find_target(table.where, table.names, goal.name)
        return goal.read(table)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of texts that are categories: `read_table` must not take them as numbers."""
        return tuple(c.name for c in self.columns if c.size and not c.kind.numeric)

    @property
    def task(self) -> str:
        """The task of the target: "regression", "binary" or "multiclass"."""
        return self._goal.task

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels of the classes 0 ... C-1; empty for regression."""
        goal = self._goal
        return ("0", "1") if goal.task == "binary" and not goal.classes else goal.classes

    @property
    def _goal(self) -> TargetColumn:
        if self.target is None:
            raise DataError("Preprocessor: fitted without a target, wanted one; fit it with one")
        return self.target

    @cached_property
    def _parts(self) -> list[tuple[str, InputColumn, str | int]]:
        """Name and column of each input, and "value", the position of a category, or "missing"."""
        numbers = [c for c in self.columns if c.kind.name != "category"]
        parts: list[tuple[str, InputColumn, str | int]]
        parts = [(c.name, c, "value") for c in numbers if c.varies]
        for c in self.columns:
            categories = [*c.categories, "(missing)"][: c.size]
            one_hot = [(f"{c.name}={label}", c, i) for i, label in enumerate(categories)]
            parts += one_hot[c.size == 2 :]  # two categories share one input
        return parts + [(f"{c.name} missing", c, "missing") for c in numbers if c.missing]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D inputs, such as ``area``, ``colour=red`` and ``area missing``."""
        return tuple(name for name, _, _ in self._parts)

    @property
    def one_hot(self) -> dict[str, range]:
        """Positions of the inputs of each column of categories, for `kernels.Coregion`.

        Columns of two categories are not in it: they have one input, whose lengthscale says how
        much the two have in common.
        """
        parts = enumerate(self._parts)
        first = {c.name: j for j, (_, c, part) in parts if part == 0 and c.size != 2}
        sizes = {c.name: c.size for c in self.columns}
        return {name: range(j, j + sizes[name]) for name, j in first.items()}

    @property
    def plan(self) -> list[dict[str, Any]]:
        """How each input is made of a row, in types that JSON has; docs/keep_a_fit.md reads it.

        Every entry has the ``column``, and its ``kind``: "number", "date", "category", or "missing"
        for an input that marks missing cells. ``fill`` is for these: a number or a label, or None
        where they are errors. An input is 1 for its ``label``, one of ``labels``.
        """
        found = []
        for _, c, part in self._parts:
            entry: dict[str, Any] = {"column": c.name, "kind": c.kind.name, "fill": c.fill}
            if part == "missing":
                entry["kind"] = part
            elif part != "value":
                labels = [*c.categories, "(missing)"][: c.size]
                fill = labels[-1] if c.missing else labels[int(c.fill or 0)]
                entry |= {"fill": fill, "label": labels[int(part)], "labels": labels}
            found.append(entry)
        return found

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Preprocessor:
        """Return a map that takes columns as they are. Cells that are no numbers are errors.

        >>> from dgp_ppl.datasets import Preprocessor
        >>> Preprocessor.of_numbers(["a", "b"]).names
        ('a', 'b')

        Args:
            names: the columns, in the order of the inputs.
        """
        return cls(tuple(InputColumn(str(name), Kind("number"), None) for name in names))

    @staticmethod
    def is_state(state: Any) -> bool:
        """Return whether a value of JSON is a state of `to_state`, of any version."""
        return isinstance(state, Mapping) and state.get("format") == _FORMAT

    def to_state(self) -> dict[str, Any]:
        """Return everything learnt, in types that JSON has."""
        learnt = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        return json.loads(json.dumps(learnt))  # lists instead of tuples

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Preprocessor:
        """Return the preprocessor with a state of `to_state`; it gives the same inputs.

        Raises:
            DataError: if the state is damaged, or of a newer version of the library.
        """
        if not cls.is_state(state):
            raise DataError("Preprocessor.from_state: no state of a Preprocessor; check the file")
        if (version := state.get("version")) != _VERSION:
            raise DataError(
                f"Preprocessor.from_state: the state has version {version!r}, wanted {_VERSION}; "
                "update dgp_ppl"
            )
        try:
            target, report = state["target"], state["report"]
            return cls(
                tuple(_column(InputColumn, column) for column in state["columns"]),
                None if target is None else _column(TargetColumn, target),
                Report(
                    str(report["title"]),
                    tuple((str(heading), str(text)) for heading, text in report["steps"]),
                    tuple(map(str, report["warnings"])),
                ),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"Preprocessor.from_state: damaged ({type(error).__name__}: {error}); fit again"
            ) from error

    def __repr__(self) -> str:
        goal = "" if self.target is None else f", target {self.target.name!r} ({self.target.task})"
        return f"Preprocessor({len(self.columns)} columns -> {len(self.names)} inputs{goal})"


def _column(made: Any, state: Mapping[str, Any]) -> Any:
    lists = {name: tuple(value) for name, value in state.items() if isinstance(value, list)}
    return made(**{**state, **lists, "kind": Kind(**state["kind"])})


def learn(
    whole: Table, target: str | None, rows: Any = None, drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
) -> Preprocessor:  # fmt: skip
    """Fit a `Preprocessor` to the training rows of a table, without Python's warnings."""
    where, names = whole.where, whole.names
    dropped, chosen = check_columns(where, names, target, drop, categorical)
    is_training = np.zeros(len(whole), bool)
    is_training[slice(None) if rows is None else rows] = True
    goal = None if target is None else fit_target(whole, target, target in chosen)
    present = np.ones(len(whole), bool) if goal is None else goal.read(whole)[1]
    table, training = whole.take(present), whole.take(is_training & present)
    if not len(training):
        raise DataError(
            f"{where}: no training rows{' with a target' * (target is not None)}, wanted some; "
            "check that the file is complete"
        )
    columns, left_out, doubts = [], dict.fromkeys(dropped, "as asked"), []
    for name in names:
        if name in left_out:
            continue
        kind, doubt = infer(table, name, name in chosen)
        doubts += [doubt] * bool(doubt)
        if name != target:
            column, note = fit_input(whole, training, name, kind, name in chosen)
            if column is None:
                left_out[name] = note
            else:
                columns.append(column)
    if not columns:
        notes = [f"{shown(name)}: {note}" for name, note in left_out.items()]
        listed = "; ".join(notes[:8]) + "; ..." * (len(notes) > 8)
        raise DataError(
            f"{where}: no column is left as an input ({listed}), wanted at least one; add inputs, "
            "or keep text with categorical=... (--categorical)"
        )
    made = Preprocessor(tuple(columns), goal)
    num_inputs, without_target = len(made.names), int((~present).sum())
    report = describe(table, training, columns, goal, num_inputs, left_out, without_target)
    return replace(made, report=replace(report, warnings=(*report.warnings, *doubts)))


def _tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def check_columns(
    where: str, names: Sequence[str], target: str | None, drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
) -> tuple[tuple[str, ...], frozenset[str]]:  # fmt: skip
    """Return `drop` and `categorical`; raise `DataError` unless each is a column, in one place."""
    dropped, chosen, known = _tuple(drop), _tuple(categorical), frozenset(names)
    given = [("target", target)] if target is not None else []
    given += [("drop", name) for name in dropped] + [("categorical", name) for name in chosen]
    for option, name in given:
        if not (isinstance(name, str) and name in known):
            headless = all(n.replace(".", "").strip("+-").isdecimal() for n in names)
            hint = " (the first line holds only numbers: is the header missing?)" * headless
            raise DataError(
                f"{where}: {option}: no column {shown(name)}{suggestion(str(name), names)}{hint}; "
                f"the columns are {quoted(names)}"
            )
    if target is not None and len(names) == 1:
        raise DataError(
            f"{where}: {shown(target)} is the only column, wanted at least one input column "
            "besides the target; add the inputs to the file"
        )
    if clash := sorted({*dropped} & {*chosen, target}):
        raise DataError(
            f"{where}: drop has {quoted(clash)}, which is the target or in categorical, wanted "
            "each column in one place; leave it out of drop"
        )
    return dropped, frozenset(chosen)


def find_target(
    where: str, names: Sequence[str], target: str | None, drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return the target, or raise `DataError` if there is none, or about a column."""
    if target is None:
        raise DataError(
            f"{where}: no target, wanted the column to predict (target=..., --target); "
            f"the columns are {quoted(names)}"
        )
    check_columns(where, names, target, drop, categorical)
    return target
