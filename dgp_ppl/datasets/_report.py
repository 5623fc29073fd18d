"""`Report`: what a `Preprocessor` did with a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dgp_ppl._errors import listed
from dgp_ppl.datasets._columns import InputColumn, TargetColumn, format_value, labels, parse_date
from dgp_ppl.datasets._messages import shown
from dgp_ppl.datasets._read import Table

_LISTED = 10  # names in a line, at most
_FEW_CELLS = 10  # below, different whole numbers are no sign of an identifier
_MOSTLY = 0.95  # the share of different whole numbers that is one


@dataclass(frozen=True)
class Report:
    """What a `Preprocessor` did with the rows that it was fitted to; print it."""

    title: str  # the table, its size, and the number of inputs made of it
    steps: tuple[tuple[str, str], ...] = ()  # a heading and a line for each
    warnings: tuple[str, ...] = ()  # what may have gone wrong, one line each

    def __str__(self) -> str:
        width = max((len(heading) for heading, _ in self.steps), default=0)
        lines = [f"  {heading:<{width}}  {text}" for heading, text in self.steps]
        return "\n".join([self.title, *lines, *(f"  Warning: {text}" for text in self.warnings)])

    __repr__ = __str__


def describe(
    table: Table, training: Table, columns: Sequence[InputColumn], target: TargetColumn | None,
    num_inputs: int, left_out: Mapping[str, str], without_target: int,
) -> Report:  # fmt: skip
    """Describe what was learnt; `table` has the rows with a target, `left_out` says why."""
    steps, missing, warnings = [], [], []
    for kind, note in (("number", ""), ("date", " (days since 1970-01-01)")):
        if names := [c.name for c in columns if c.kind.name == kind and c.varies]:
            steps.append((f"{kind}s", listed(names, _LISTED) + note))
    for c in columns:
        if c.kind.name == "category":
            seen = {*labels(training, c.name, c.kind)[0]}
            others = [category for category in c.categories if category not in seen]
            more = ", and missing" * c.missing
            more += f" ({listed(others, _LISTED)} in other rows alone)" if others else ""
            steps.append(("categories", f"{c.name}: {listed(c.categories, _LISTED)}{more}"))
            continue
        values, column = c.read(training), table.columns[c.name]
        present = values[~np.isnan(values)]
        if c.missing:
            cells = _counted(len(values) - len(present), "cell")
            fill = f" -> {format_value(c.kind, c.fill or 0)}, and" if c.varies else ", replaced by"
            missing.append(("missing", f"{c.name}: {cells}{fill} an input that marks them"))
        different = len(np.unique(present[present == np.round(present)]))
        if c.kind.name == "number" and different >= max(_FEW_CELLS, _MOSTLY * len(present)):
            warnings.append(
                f"column {shown(c.name)} has {different} different whole numbers in "
                f"{len(present)} cells: if it is an identifier, leave it out (drop=..., --drop)"
            )
        if c.kind.order == "month" and all(parse_date(t, "day") is not None for t in column.texts):
            warnings.append(
                f"column {shown(c.name)}: dates such as {column.texts[0]} are read as "
                "month/day/year, but day and month could be exchanged: write year-month-day"
            )
    steps += missing
    for name, note in left_out.items():
        steps.append(("left out", f"{name}: {note}"))
        if "different texts" in note:
            warnings.append(
                f"column {shown(name)} is left out, as it has {note}: to keep it as categories, "
                "name it (categorical=..., --categorical)"
            )
    if without_target:
        steps.append(("left out", f"{_counted(without_target, 'row')} without a target"))
    if target is not None:
        classes = f": {listed(target.classes, _LISTED)}" if target.classes else ""
        steps.append(("target", f"{target.name} ({target.task}{classes})"))
    title = f"{table.where}: {len(training):,} training rows, {len(table.names)} columns -> "
    return Report(title + _counted(num_inputs, "input"), tuple(steps), tuple(warnings))


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
