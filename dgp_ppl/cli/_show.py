"""`dgp-ppl show` and `dgp-ppl datasets`: what a kept fit is, and which data sets have names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dgp_ppl import datasets
from dgp_ppl._errors import printable
from dgp_ppl.cli._app import app, console, print_note
from dgp_ppl.comparison._metrics import INFERENCE_HEADINGS, PREDICTION_HEADINGS, format_number
from dgp_ppl.comparison._setting import OPTIONS
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.datasets._load import named_files
from dgp_ppl.persistence._archive import ArchiveReader, read_array
from dgp_ppl.persistence._trust import nodes_of

_ENTRIES = {
    "source": str, "target": str, "task": str, "classes": list, "rows": dict, "config": dict,
    "row": dict,
}  # fmt: skip

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
    as_json: Annotated[bool, typer.Option("--json", help="Print what is known as JSON.")] = False,
) -> None:
    """Say what a kept fit is: its model, columns, target, metrics and versions.

    Example: `dgp-ppl show price.dgp`.
    """
    archive = ArchiveReader(fit)
    record = archive.about()
    with archive.reading():
        lines = list(_lines(archive, record, comparison_of(record["info"])))
    if as_json:
        print(json.dumps(record, indent=1))
        return
    width = max(len(heading) for heading, _ in lines)
    print(printable(fit))
    for heading, text in lines:
        print(f"  {printable(heading):<{width}}  {printable(text)}")


def comparison_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return what `Run.save` wrote in a fit's `info`; an empty dict for other fits.

    ``config`` and ``row`` may be empty.
    """
    about = info.get("comparison", {})
    if about == {}:
        return {}
    about = {"config": {}, "row": {}} | about if isinstance(about, dict) else {}
    for name, kind in _ENTRIES.items():
        if not isinstance(about.get(name), kind):
            raise TypeError(f"the {name} of its info['comparison'] is missing or of another type")
    return about


def _lines(
    archive: ArchiveReader, kept: dict[str, Any], about: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield headings and texts of the record `kept`; `comparison_of` returned `about`.

    Nothing is imported: the parts are told by their names in the file.
    """
    config, row = about.get("config", {}), about.get("row", {})
    parts, params = archive.record["content"], archive.record["content"]["params"]
    if row:
        yield "method", row["method"]
    yield "model", kept["model"]
    if parts["guide"] is not None:
        yield "guide", parts["guide"]["class"].partition(":")[2]
    each = [read_array(archive.member(n["member"])).size for n in nodes_of(params) if "member" in n]
    yield "params", f"{len(params['items'])} of {sum(each):,} numbers"
    if kept["info"].get("interrupted"):
        yield "interrupted", "the fit ended before its last step"
    shown = {n: v for n in _OPTIONS if (v := config.get(n)) is not None and v is not False}
    if "Chains" not in str((parts["posterior_samples"] or {}).get("class")):
        shown = {n: v for n, v in shown.items() if n not in ("draws", "chains")}
    if shown:
        yield "options", ", ".join(f"{n} {v}" for n, v in shown.items())
    if about:
        yield "data", about["source"]
    if Preprocessor.is_state(kept["preprocessing"]):
        yield from Preprocessor.from_state(kept["preprocessing"]).report.steps
    else:
        if kept["columns"] is not None:
            yield "columns", ", ".join(kept["columns"])
        if about:
            classes = f": {', '.join(about['classes'])}" if about["classes"] else ""
            yield "target", f"{about['target']} ({about['task']}{classes})"
    if about:
        rows = about["rows"]
        yield "rows", f"{rows['training']:,} for training, {rows['held_out']:,} held out"
    elif kept["data"] is not None and any(kept["data"]["shapes"][:1]):
        yield "rows", f"{kept['data']['shapes'][0][0]:,}"
    if row.get("elbo_per_datum") is not None:
        yield "bound", f"{format_number(row['elbo_per_datum'])} nats per datum (ELBO)"
    if row:
        names = {n: h for n, h in _HEADINGS.items() if row.get(n) is not None}
        yield "held out", ", ".join(f"{h} {format_number(row[n])}" for n, h in names.items())
        yield "time", f"{format_number(row['seconds'])} s, {row['steps']:,} steps"
    saved = kept["versions"]
    packages = ", ".join(f"{name} {saved[name]}" for name in _PACKAGES if name in saved)
    yield "saved", f"{saved['date']} by {packages}, on {saved['device'].split(maxsplit=1)[-1]}"


@app.command("datasets")
def _datasets() -> None:
    """List the data sets that can be loaded by name without a network."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "rows", "columns", "task", "source"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns") else "left")
    for info in datasets.names():
        table.add_row(info.name, str(info.rows), str(info.columns), info.task, info.source)
    shown = console()
    shown.print(table)
    if files := named_files():
        print_note(shown, f"Files of the folder DGP_PPL_DATA: {', '.join(files)}")
    shown.print(
        "To add data sets, set DGP_PPL_DATA to a folder of .npz files. `dgp-ppl compare` also "
        "takes .csv, .parquet and .npz files."
    )
