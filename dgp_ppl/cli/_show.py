"""`dgp-ppl show` and `dgp-ppl datasets`: what a kept fit is, and which data sets have names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dgp_ppl import datasets
from dgp_ppl.cli._app import app
from dgp_ppl.cli._kept import open_fit
from dgp_ppl.comparison._metrics import INFERENCE_HEADINGS, PREDICTION_HEADINGS, format_number
from dgp_ppl.comparison._setting import OPTIONS
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.datasets._load import named_files
from dgp_ppl.inference import Chains
from dgp_ppl.persistence import KeptFit

__all__: list[str] = []

_OPTIONS = [*(option.name for option in OPTIONS), "seed", "x64"]
_HEADINGS = {
    name: heading
    for name, heading in (PREDICTION_HEADINGS | INFERENCE_HEADINGS).items()
    if name not in ("elbo_per_datum", "seconds")
}
_PACKAGES = ("dgp_ppl", "commit", "jax", "numpyro", "python")


@app.command("show")
def _show(
    fit: Annotated[Path, typer.Argument(help="A file of `dgp-ppl fit`, or of dgp_ppl.save.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that is known as JSON.")
    ] = False,
) -> None:
    """Say what a kept fit is: its model, columns, target, metrics and versions.

    Example: `dgp-ppl show price.dgp`.
    """
    kept, record, about = open_fit(fit)
    if as_json:
        print(json.dumps(record, indent=1, allow_nan=False))
        return
    lines = list(_lines(kept, record["model"], about))
    width = max(len(heading) for heading, _ in lines)
    print(fit)
    for heading, text in lines:
        print(f"  {heading:<{width}}  {text}")


def _lines(kept: KeptFit, model: str, about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield headings and texts; `comparison_of` returned `about`."""
    import jax

    config, row = about.get("config", {}), about.get("row", {})
    if row:
        yield "method", row["method"]
    yield "model", model
    if kept.guide is not None:
        yield "guide", type(kept.guide).__name__
    sizes = [int(np.size(a)) for a in jax.tree.leaves(kept.params)]
    yield "params", f"{len(kept.params)} of {sum(sizes):,} numbers"
    if kept.is_interrupted:
        yield "interrupted", "the fit ended before its last step"
    shown = {n: v for n in _OPTIONS if (v := config.get(n)) is not None and v is not False}
    if not isinstance(kept.posterior_samples, Chains):
        shown = {n: v for n, v in shown.items() if n not in ("draws", "chains")}
    if shown:
        yield "options", ", ".join(f"{n} {v}" for n, v in shown.items())
    if about:
        yield "data", about["source"]
    if Preprocessor.is_state(kept.preprocessing):
        yield from Preprocessor.from_state(kept.preprocessing).report.steps
    else:
        if kept.columns is not None:
            yield "columns", ", ".join(kept.columns)
        if about:
            classes = f": {', '.join(about['classes'])}" if about["classes"] else ""
            yield "target", f"{about['target']} ({about['task']}{classes})"
    if about:
        rows = about["rows"]
        yield "rows", f"{rows['training']:,} for training, {rows['held_out']:,} held out"
    elif kept.data is not None and any(kept.data["shapes"][:1]):
        yield "rows", f"{kept.data['shapes'][0][0]:,}"
    if row.get("elbo_per_datum") is not None:
        yield "bound", f"{format_number(row['elbo_per_datum'])} nats per datum (ELBO)"
    if row:
        names = {n: h for n, h in _HEADINGS.items() if row.get(n) is not None}
        yield "held out", ", ".join(f"{h} {format_number(row[n])}" for n, h in names.items())
        yield "time", f"{format_number(row['seconds'])} s, {row['steps']:,} steps"
    saved = kept.versions
    packages = ", ".join(f"{name} {saved[name]}" for name in _PACKAGES if name in saved)
    yield "saved", f"{saved['date']} by {packages}, on {saved['device'].split(maxsplit=1)[-1]}"


@app.command("datasets")
def _datasets() -> None:
    """List the data sets that can be loaded by name without a network."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "rows", "columns", "task", "source"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns") else "left")
    for info in datasets.names():
        table.add_row(info.name, str(info.rows), str(info.columns), info.task, info.source)
    console = Console()
    console.print(table)
    if files := named_files():
        console.print(f"Files of the folder DGP_PPL_DATA: {', '.join(files)}")
    console.print(
        "To add data sets, set DGP_PPL_DATA to a folder of .npz files. `dgp-ppl compare` also "
        "takes .csv, .parquet and .npz files."
    )
