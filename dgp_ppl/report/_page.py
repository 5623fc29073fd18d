"""The HTML report of a comparison: one self-contained page with tables and figures."""

from __future__ import annotations

import base64
import importlib
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl import criticism, datasets
from dgp_ppl._files import replacing
from dgp_ppl.comparison._compare import Comparison
from dgp_ppl.comparison._metrics import (
    INFERENCE_HEADINGS,
    PREDICTION_HEADINGS,
    UNSEEN_HEADINGS,
    density_notes,
    format_summary,
)
from dgp_ppl.comparison._run import Run
from dgp_ppl.datasets._source import RowSource
from dgp_ppl.report._figures import method_label, write_figures

try:
    import jinja2
except ImportError as error:
    raise ModuleNotFoundError(
        "report: wanted jinja2; python -m pip install 'dgp_ppl[report]'", name="jinja2"
    ) from error

_DPI = 130
_BEST: dict[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("log_loss", "ece", "brier", "rmse", "crps"), min),
    **dict.fromkeys(("accuracy", "auc", "log_density"), max),
}  # the best of the means of a metric


def write_report(comparison: Comparison, folder: Path) -> None:
    """Write the figures of a comparison, and report.html: one page that needs no other file.

    The page has the tables, the figures, criticism of the first split's fits, the configuration
    and the versions. ::

        dgp_ppl.compare("diabetes", out="r", report=dgp_ppl.report.write_report)

    Args:
        comparison: the comparison, with at least one fit.
        folder: the folder.
    """
    figures = write_figures(comparison, folder)
    record, runs = comparison.record, comparison.fits
    is_regression = record["data"]["task"] == "regression"
    loo, notes = _leave_one_out(runs)
    contents = {
        "data": record["data"],
        "config": {n: json.dumps(v) for n, v in record["config"].items()},
        "versions": record["versions"],
        "splits": len({row["split"] for row in record["splits"]}),
        "regression": is_regression,
        "metrics": _summary_table(record["summary"], PREDICTION_HEADINGS),
        "inference": _summary_table(record["summary"], INFERENCE_HEADINGS),
        "failed": [r for r in record["splits"] if "error" in r],
        "checks": {method_label(method): run.check.lines for method, run in runs.items()},
        "loo": loo,
        "repeated": any(row["repeated"]["mean"] for row in record["summary"]),
        "unseen": _summary_table(record["summary"], UNSEEN_HEADINGS),
        "notes": density_notes(record["splits"]) + _repeated_note(runs) + notes,
        "figures": {name: _inline(figure) for name, figure in figures.items()},
    }
    source = files("dgp_ppl.report").joinpath("report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    with replacing(folder / "report.html") as draft:
        draft.write_text(environment.from_string(source).render(contents), encoding="utf-8")


def _summary_table(
    summary: Sequence[Mapping[str, Any]], headings: Mapping[str, str]
) -> dict[str, Any]:
    """Return the headings and rows of a table; the best mean of each metric is marked."""
    shown, best = [], {}
    for metric in headings:
        means = [row[metric]["mean"] for row in summary if metric in row]
        means = [mean for mean in means if mean is not None]
        if means:
            shown.append(metric)
        if len(means) > 1 and (choose := _BEST.get(metric.removesuffix("_of_unseen"))):
            best[metric] = choose(means)
    rows = []
    for row in summary:
        cells = [
            {"text": format_summary(m, row[m]), "best": row[m]["mean"] == best.get(m, np.nan)}
            for m in shown
        ]
        if any(cell["text"] for cell in cells):
            rows.append({"method": method_label(row["method"]), "cells": cells})
    return {"headings": [headings[m] for m in shown], "rows": rows}


def _leave_one_out(runs: Mapping[str, Run]) -> tuple[dict[str, Any], list[str]]:
    """Return the leave-one-out table of all methods, and the warnings that came with it."""
    values: dict[str, dict[str, str]] = {}
    estimates: dict[str, Any] = {}
    notes: list[str] = []
    for method, run in runs.items():
        name = method_label(method)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                loo = estimates[name] = criticism.loo(run.tree)
            except ValueError as error:  # too few draws, or draws that do not differ
                notes.append(f"{name} has no leave-one-out estimate: {error}.")
                continue
            khat = criticism.weights_khat(run.tree)
        values[name] = {
            "elpd LOO": f"{loo.elpd:.1f}",
            "its SE": f"{loo.se:.1f}",
            "p LOO": f"{loo.p:.1f}",
            "high k": f"{(loo.pareto_k.values > loo.good_k).sum()} of {loo.n_data_points}",
            "weight": "",
            "k-hat": "" if khat is None else f"{khat:.2f}",
        }
        # ArviZ also warns of high k, which has its own column.
        texts = dict.fromkeys(str(w.message) for w in caught)
        notes += [f"{name}: {t}." for t in texts if "hidden" in t or "latent" in t]
    if len(values) > 1:
        arviz_stats: Any = importlib.import_module("arviz_stats")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights = arviz_stats.compare(estimates)["weight"]
        for name, row in values.items():
            row["weight"] = f"{float(weights[name]):.2f}"
    names = next(iter(values.values()), {})  # the template explains them
    shown = [n for n in names if any(row[n] for row in values.values())]
    rows = [
        {"method": name, "cells": [{"text": row[n]} for n in shown]} for name, row in values.items()
    ]
    return {"headings": shown, "rows": rows}, notes


def _repeated_note(runs: Mapping[str, Run]) -> list[str]:
    """Tell how many held-out rows of the first split have the inputs of a training row."""
    run = next(iter(runs.values()))
    if isinstance(run.data, RowSource):  # few of the training rows are at hand
        return []
    inputs = datasets.repeated_rows(run.x, run.x_test).sum()
    if not inputs:
        return []
    rows, held_out = (np.column_stack(a) for a in ((run.x, run.y), (run.x_test, run.y_test)))
    both = datasets.repeated_rows(rows, held_out).sum()
    warning = (
        " A method that remembers rows predicts these well. If they are copies of a training row, "
        "remove them before you compare."
    )
    return [
        f"{inputs:,} of the {len(run.y_test):,} held-out rows have the inputs of a training row, "
        f"{both:,} of them also its target.{warning if both else ''}"
    ]


def _inline(figure: Any) -> dict[str, Any]:
    """Return a figure as a data URI, with its size in CSS pixels."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    text = base64.b64encode(file.getvalue()).decode()
    return {"uri": f"data:image/png;base64,{text}", "width": width, "height": height}
