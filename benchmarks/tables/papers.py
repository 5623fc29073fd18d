"""The published numbers of `papers.csv`, ours beside them, and the page that shows both.

A row of papers.csv is a cell of a paper's table, as printed there: shares for percents, and errors
only where the paper has them. `reason` says why a cell cannot have a number of ours.
"""

import csv
import math
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plan import LARGE, SMALL, STAND_INS, cell_fits
from summary import Records, mean

__all__ = ["WHY", "cells", "page"]

Cell = dict[str, str]
METRICS = {"rmse": "RMSE", "log_density": "log density", "accuracy": "accuracy", "auc": "AUC"}
# Of each paper's means: the number of splits or runs, and whether its errors are standard
# deviations. Without errors: shares of held-out rows.
SPLITS = {"dsvi": (20, False), "diffgp": (20, False), "decoupled": (5, True), "ddvi": (5, True)}
HELD_OUT = {"mnist": 10_000, "fashion_mnist": 10_000, "higgs_subset": 5760}
TITLES = {
    "dsvi": "Salimbeni & Deisenroth (2017): doubly stochastic variational inference",
    "diffgp": "Hegde et al. (2019): differential GPs",
    "decoupled": "Havasi et al. (2018): decoupled inducing inputs",
    "ddvi": "Xu et al. (2024): diffusion, implicit and SGHMC",
}
# Why a cell is behind, by the start of "paper row data metric".
WHY = {
    "dsvi BNN-PBP": "our weights have a mean field, fitted by SVI, instead of PBP",
    **{
        f"diffgp DiffGP {cell}": "one kernel for all outputs of the field; with a kernel each, "
        "concrete has -2.82 at T = 3, kin8nm 1.33 at T = 1"
        for cell in ("T=1 kin8nm", "T=2 kin8nm", "T=2 concrete")
    },
    **{
        f"diffgp DiffGP T={t} power": "the first split alone; on it our SGP has 4.24, over 20 "
        "splits 3.85"
        for t in range(1, 6)
    },
    "dsvi DGP L=3 power": "the first split alone, from one start; on it our SGP has 4.24, over 20 "
    "splits 3.85, and with two layers a second start gains 0.22",
    "dsvi DGP L=5 protein": "3,000 steps, the first split alone; two layers gain 0.03 from 1,500 "
    "to 6,000 steps, for 0.07 that are missing",
    "decoupled decoupled L=2 protein": "6,000 steps, the first split alone; its RMSE is level, and "
    "its bound 0.01 below that of M = 200",
    "dsvi SGP M=500 power": "the first split alone; on it M = 100 has 4.24, over 20 splits 3.85",
    **{
        f"dsvi SGP M={size} mnist": "3,000 steps; after 12,000 ours has 0.9712 with M = 100, level"
        for size in (100, 500)
    },
    **{
        f"dsvi DGP L={depth} mnist": "3,000 steps; Xu et al. (2024) measured 0.9717 for L = 3, "
        "less than ours"
        for depth in (2, 3)
    },
}

PAGE = """# Tables

All {cells} numbers of four papers on deep GPs. Of these, {done} have ours beside them:
**{ahead} ahead, {level} level** within two standard errors, **{behind} behind**, {other} of other
data. Ours come from {fits} fits of {dates}.

A cell is `theirs/ours`, with + ahead, = level, and bold with - behind; ~ has no verdict, as ours is
of other data: flights from New York in 2013, 17,981 trips, 1,176 songs. Log densities of held-out
rows are in nats per row. Ours are means over the splits that `benchmarks/tables/notebook.csv`
counts; a mean of one split takes the paper's deviation over splits. HIGGS is 57,591 of the paper's
11 million rows, molecules are 29,978 of 60,000. What has no number is at the end.
`benchmarks/tables/appendix.md` says what the fits say of our defaults. This fills a cell:

```sh
python benchmarks/tables/run.py --paper ddvi --row "DDVI L=3" --data mnist
```
{tables}
## Missing

{missing}
"""


def cells() -> list[Cell]:
    """Return the published numbers."""
    with Path(__file__).with_name("papers.csv").open() as file:
        return list(csv.DictReader(file))


def page(found: Records, records: list[dict[str, Any]]) -> str:
    """Return the page of the documentation."""
    all_cells, dates = cells(), sorted(r["date"] for r in records)
    marks = Counter(mark(c, found) for c in all_cells)
    tables = [
        _paper(paper, [c for c in all_cells if c["paper"] == paper], found) for paper in TITLES
    ]
    return PAGE.format(
        cells=len(all_cells), done=len(all_cells) - marks[""], ahead=marks["+"], level=marks["="],
        behind=marks["-"], other=marks["~"], fits=len(records), dates=f"{dates[0]} to {dates[-1]}",
        tables="".join(tables), missing="\n".join(_missing(all_cells, found)),
    )  # fmt: skip


def ours(cell: Cell, found: Records) -> tuple[float, float] | None:
    """Return the mean of our fits of a cell and its standard error, NaN for one split."""
    fits = cell_fits(cell["paper"], cell["row"], cell["data"])
    if cell["reason"] or not fits:
        return None
    records = found.get((fits[0].table, fits[0].data.removeprefix("uci/"), fits[0].label), [])
    return mean(records, cell["metric"])


def mark(cell: Cell, found: Records) -> str:
    """Return + (ahead), = (level within two standard errors), - (behind), or nothing.

    Of other data, ~: no verdict.
    """
    value = ours(cell, found)
    if value is None:
        return ""
    if cell["data"] in STAND_INS:
        return "~"
    theirs = float(cell["mean"])
    gain = (value[0] - theirs) * (-1 if cell["metric"] in ("rmse", "nll") else 1)
    rounding = 0.5 * 10.0 ** -_decimals(cell)
    if abs(gain) <= rounding + 2 * _error(cell, value[1]):
        return "="
    return "+" if gain > 0 else "-"


def _error(cell: Cell, error: float) -> float:
    """Return the standard error of the difference, given that of our mean, NaN for one split."""
    theirs, name = float(cell["mean"]), cell["data"]
    if cell["error"]:
        num, is_deviation = SPLITS[cell["paper"]]
        # An error of 0.00 may be as large as 0.005.
        printed = float(cell["error"]) or 0.5 * 10.0 ** -_decimals(cell)
        printed /= num**0.5 if is_deviation else 1.0
        return math.hypot(printed, printed * num**0.5 if math.isnan(error) else error)
    if cell["metric"] == "accuracy":  # both of the same held-out rows
        return math.sqrt(2 * theirs * (1 - theirs) / HELD_OUT[name])
    # Hanley & McNeil (1982) of an AUC, with half of the rows in each class
    num, square = HELD_OUT[name] / 2, theirs**2
    pairs = theirs / (2 - theirs) + 2 * square / (1 + theirs) - 2 * square
    return math.sqrt((theirs - square + (num - 1) * pairs) / num**2)


def _decimals(cell: Cell) -> int:
    return len(cell["mean"].partition(".")[2])


def _paper(paper: str, all_cells: list[Cell], found: Records) -> str:
    """Return the tables of a paper, and why cells are behind."""
    text = [f"\n## {TITLES[paper]}\n"]
    groups: dict[str, list[Cell]] = defaultdict(list)  # a table for each metric of the UCI sets
    for c in all_cells:
        if mark(c, found):
            groups[METRICS[c["metric"]] if c["data"] in SMALL + LARGE else " "].append(c)
    for title, part in groups.items():
        columns = list(dict.fromkeys((c["data"], c["metric"]) for c in part))
        heads = [d if title.strip() else f"{d} {METRICS[m]}" for d, m in columns]
        text += [_row([title, *heads]), "|---" * (len(columns) + 1) + "|"]
        for row in dict.fromkeys(c["row"] for c in part):
            by_column = {
                (c["data"], c["metric"]): _value(c, found) for c in part if c["row"] == row
            }
            text.append(_row([row, *(by_column.get(column, "") for column in columns)]))
        text.append("")
    reasons: dict[str, dict[str, None]] = defaultdict(dict)
    for c in all_cells:
        if mark(c, found) == "-":
            name = f"{c['row']} {c['data']}"
            key = next((k for k in WHY if f"{paper} {name}".startswith(k)), None)
            reasons[WHY[key] if key else "cause not found"][name] = None
    text += [
        textwrap.fill(f"- {', '.join(n)}: {why}.", 100, subsequent_indent="  ")
        for why, n in reasons.items()
    ]
    return "\n".join(text) + ("\n" if reasons else "")


def _value(cell: Cell, found: Records) -> str:
    value = ours(cell, found)
    assert value is not None
    text = f"{cell['mean']}/{value[0]:.{_decimals(cell)}f}{mark(cell, found)}"
    return f"**{text}**" if text.endswith("-") else text


def _missing(all_cells: Iterable[Cell], found: Records) -> list[str]:
    """Return a line for each reason why cells have no number of ours."""
    told: dict[str, Counter[str]] = defaultdict(Counter)
    waiting: dict[str, dict[str, float]] = defaultdict(dict)  # hours by paper and fit
    left: Counter[str] = Counter()
    for c in all_cells:
        if c["reason"]:
            told[c["reason"]][c["data"]] += 1
        elif ours(c, found) is None:
            group = f"{c['paper']}, {'UCI' if c['data'] in SMALL + LARGE else c['data']}"
            left[group] += 1
            for fit in cell_fits(c["paper"], c["row"], c["data"]):
                name = fit.data.removeprefix("uci/")
                waiting[group][fit.name] = _hours(fit.table, name, fit.label, found)
    lines = [
        f"- {why.capitalize()}: {', '.join(f'{name} {n}' for name, n in names.items())}."
        for why, names in told.items()
    ]
    costs = [f"{g} {n} ({sum(waiting[g].values()):.1f} h)" for g, n in left.items()]
    lines.append(f"- Not run, with the hours of one core: {'; '.join(costs)}.")
    return [textwrap.fill(line, 100, subsequent_indent="  ") for line in lines]


def _hours(table: str, data: str, label: str, found: Records) -> float:
    """Return the hours of a fit: the mean of fits of its row, else of its data, by its size."""
    for near in (
        lambda t, d, r: (t, r) == (table, label),
        lambda t, d, r: (t, d) == (table, data),
        lambda t, d, r: d == data,
    ):
        seconds = [
            r["seconds"] / _size(key[2]) * _size(label)
            for key, records in found.items() if near(*key) for r in records
        ]  # fmt: skip
        if seconds:
            return sum(seconds) / len(seconds) / 3600
    return math.nan


def _size(label: str) -> int:
    """Return the number of kernels of a row, if hidden layers have eight outputs."""
    depth = re.search(r"L(\d)", label)
    if label.startswith("svgp"):
        return 25 if "M = 500" in label else 1  # times the square of M / 100
    return 1 + 8 * (int(depth[1]) - 1 if depth else 1)


def _row(row_cells: list[str]) -> str:
    return f"|{'|'.join(row_cells)}|"
