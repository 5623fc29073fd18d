"""One page about a comparison, with everything in it: tables, pictures, and how to read them."""

import base64
import io
import json
import warnings
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl import criticism, plots
from dgp_ppl.comparison._run import Run
from dgp_ppl.comparison._tables import INFERENCE, SCORES, cell, number

__all__ = ["write_report"]

_DPI = 130
_MIXED = 1.05  # R-hat, from which on a note is made
_LOWER = {"log_loss", "ece", "brier", "rmse", "crps"}  # scores of which less is better
_HIGHER = {"accuracy", "auc", "log_density"}

_READ = {
    "training": (
        "Training",
        "Curves that still climb at the right end want more steps; a method above another has the "
        "tighter bound, but bounds of different models are not to be compared as fits.",
    ),
    "predictions": (
        "Predicted against observed",
        "Points near the diagonal are predicted well; crosses are rows outside of their interval, "
        "and about one in ten should be.",
    ),
    "coverage": (
        "Interval coverage",
        "A calibrated method stays in the grey band; above it its intervals are too wide, below it "
        "too narrow.",
    ),
    "pit": (
        "Where held-out targets fall in their predictive distributions",
        "Flat is calibrated; a heap in the middle says too wide, heaps at both ends say too "
        "narrow, a slope says biased.",
    ),
    "reliability": (
        "Reliability",
        "Points on the diagonal are classes that come as often as they are promised; below it the "
        "method is too sure of itself.",
    ),
    "function": (
        "The function",
        "The band holds nine tenths of new targets; thin lines are draws of the function itself, "
        "and where they part the data say little.",
    ),
    "scores": (
        "Scores over splits",
        "Further left is better for errors, further right for log densities; bars are standard "
        "errors over splits, and methods whose bars overlap are not told apart by these data.",
    ),
}

_EXPLAINED = {
    "elpd_loo": "Log density of left-out rows, summed over rows, in nats: more is better.",
    "se": "Its standard error over rows. Differences within two of these say little.",
    "p_loo": "Effective number of parameters: how much rows are predicted better by being fitted.",
    "k_high": "Rows whose Pareto k is above ArviZ's threshold: of these LOO is not to be trusted.",
    "weight": "Share of each method in the mixture that predicts left-out rows best (stacking).",
    "waic": "Another estimate of the first column; a large gap between the two says neither holds.",
    "khat": "Below 0.7 the guide is near its posterior, at its hyperparameters.",
}
_HEADS = {
    "elpd_loo": "elpd LOO", "se": "its SE", "p_loo": "p LOO", "k_high": "high k",
    "weight": "weight", "waic": "elpd WAIC", "khat": "k-hat",
}  # fmt: skip


def write_report(
    path: Path, record: Mapping[str, Any], runs: Mapping[str, Run], figures: Mapping[str, Any]
) -> None:
    """Write a comparison as one self-contained HTML page.

    Args:
        path: the file.
        record: what results.json holds.
        runs: the first split's, by method.
        figures: their pictures, by name.
    """
    import jinja2

    source = files("dgp_ppl.comparison").joinpath("report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    draft = path.with_suffix(".html.part")
    draft.write_text(
        environment.from_string(source).render(_contents(record, runs, figures)),
        encoding="utf-8",
    )
    draft.replace(path)


def _contents(
    record: Mapping[str, Any], runs: Mapping[str, Run], figures: Mapping[str, Any]
) -> dict[str, Any]:
    drawn = dict(figures)
    regression = record["data"]["task"] == "regression"
    if regression:
        held = {plots.method_words(m): _pit(r) for m, r in runs.items()}
        drawn["pit"] = plots.pit_histograms(held, f"{record['data']['name']}: held-out rows")
        if len(record["summary"]) > 1:
            drawn["scores"] = plots.score_dots([record])
    order = [n for n in _READ if n in drawn]
    loo, notes = _left_out(runs)
    notes += [
        f"{plots.method_words(r['method'])}: its chains have not mixed (R-hat {r['rhat']:.2f}), so "
        "that its draws are no posterior's, and its row above says little."
        for r in record["splits"]
        if r["split"] == 0 and (r.get("rhat") or 1.0) > _MIXED
    ]
    return {
        "data": record["data"],
        "config": {n: json.dumps(v) for n, v in record["config"].items()},
        "versions": record["versions"],
        "splits": record["config"]["splits"],
        "regression": regression,
        "scores": _table(record["summary"], SCORES),
        "inference": _table(record["summary"], INFERENCE),
        "failed": [r for r in record["splits"] if "error" in r],
        "loo": loo,
        "notes": notes,
        "explained": [(_HEADS[n], _EXPLAINED[n]) for n in _HEADS if n in loo["used"]],
        "checks": _checks(runs) if regression else [],
        "pictures": [
            {"name": n, "title": _READ[n][0], "text": _READ[n][1], "data": _inline(drawn[n])}
            for n in order
        ],
    }


def _pit(run: Run) -> np.ndarray:
    return criticism.pit(run.tree, group="predictions")


def _table(summary: Any, headings: Mapping[str, str]) -> dict[str, Any]:
    """Headings and rows of cells; the best mean of each score is marked."""
    known = {
        m: h
        for m, h in headings.items()
        if any(r.get(m, {}).get("mean") is not None for r in summary)
    }
    best = {}
    for metric in known:
        means = [r[metric]["mean"] for r in summary if r[metric]["mean"] is not None]
        if len(means) > 1 and metric in _LOWER | _HIGHER:
            best[metric] = min(means) if metric in _LOWER else max(means)
    rows = [
        {
            "method": plots.method_words(row["method"]),
            "cells": [
                {"text": cell(m, row[m]), "best": m in best and row[m]["mean"] == best[m]}
                for m in known
            ],
        }
        for row in summary
        if any(row[m]["mean"] is not None for m in known)
    ]
    return {"headings": list(known.values()), "rows": rows}


def _left_out(runs: Mapping[str, Run]) -> tuple[dict[str, Any], list[str]]:
    """LOO and what belongs to it of every method, and what was warned of on the way."""
    rows: dict[str, dict[str, str]] = {}
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trees = {m: r.tree for m, r in runs.items()}
        for method, tree in trees.items():
            told.clear()
            found = criticism.loo(tree)
            high = int((found.pareto_k.values > found.good_k).sum())
            tail = criticism.weights_khat(tree)
            rows[method] = {
                "elpd_loo": f"{found.elpd:.1f}",
                "se": f"{found.se:.1f}",
                "p_loo": f"{found.p:.1f}",
                "k_high": f"{high} of {found.n_data_points}",
                "waic": f"{criticism.waic(tree).elpd:.1f}",
                "khat": "" if tail is None else f"{tail:.2f}",
            }
            # ArviZ's own warnings are the table's column of high k.
            ours = [t for t in (str(w.message) for w in told) if "hidden" in t or "latent" in t]
            notes += [f"{plots.method_words(method)}: {text}." for text in dict.fromkeys(ours)]
        if len(trees) > 1:
            table = criticism.stacking(trees)
            for method in rows:
                rows[method]["weight"] = f"{float(table.loc[method, 'weight']):.2f}"
    used = [n for n in _HEADS if any(r.get(n) for r in rows.values())]
    shown = [
        {"method": plots.method_words(m), "cells": [r.get(n, "") for n in used]}
        for m, r in rows.items()
    ]
    return {"headings": [_HEADS[n] for n in used], "rows": shown, "used": used}, notes


def _checks(runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Posterior predictive checks of every method, a row for each statistic."""
    rows = []
    for method, run in runs.items():
        for name, row in criticism.posterior_check(run.tree).iterrows():
            p = float(row["p_value"])
            rows.append(
                {
                    "method": plots.method_words(method),
                    "statistic": name,
                    "observed": number(row["observed"]),
                    "predicted": f"{number(row['lower'])} to {number(row['upper'])}",
                    "p_value": f"{p:.3f}",
                    "far": min(p, 1 - p) < 0.025,
                }
            )
    return rows


def _inline(figure: Any) -> dict[str, Any]:
    """A picture as text, with its size in CSS pixels."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    text = base64.b64encode(file.getvalue()).decode()
    return {"uri": f"data:image/png;base64,{text}", "width": width, "height": height}
