"""`dgp-ppl compare`: fit several methods, and compare their predictions."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import dgp_ppl
from dgp_ppl._errors import printable
from dgp_ppl.cli._app import app, console, print_note
from dgp_ppl.cli._options import DATA, SHARED, Data, annotation, data_stem, keywords, option
from dgp_ppl.comparison import METHODS, Comparison, compare, local_workers
from dgp_ppl.comparison._folder import LAST_FIGURES
from dgp_ppl.comparison._metrics import (
    INFERENCE_HEADINGS,
    PREDICTION_HEADINGS,
    UNSEEN_HEADINGS,
    density_notes,
    format_number,
    format_summary,
)
from dgp_ppl.comparison._rivals import RIVALS
from dgp_ppl.comparison._setting import MODEL, OPTIONS, RESULTS, with_options


@app.command("compare")
@with_options([*SHARED, *OPTIONS], annotation)
def _compare(
    data: Data,
    methods: Annotated[
        str | None,
        option(
            f"Methods to compare, separated by commas: {', '.join([*METHODS, *RIVALS])}.",
            MODEL,
            show_default="sgpr,dsvi,dspp; for classes dsvi,dspp",
        ),
    ] = None,
    *,
    splits: Annotated[
        int | None,
        option(
            "Number of splits: those that come with the data, else random ones with 90 % of "
            "the rows for training.",
            DATA,
            show_default="3, or all if the data come with fewer",
        ),
    ] = None,
    out: Annotated[
        Path | None, option("Folder for the results.", RESULTS, show_default="results/DATA-TIME")
    ] = None,
    resume: Annotated[
        bool,
        option(
            "Go on with the interrupted comparison in the folder, with the same options.",
            RESULTS,
            "--resume",
        ),
    ] = False,
    report: Annotated[
        bool,
        option("Also write report.html, a page with all tables and figures.", RESULTS, "--report"),
    ] = False,
    workers: Annotated[
        int,
        option("Processes that fit side by side, with a part of the cores each.", RESULTS, min=1),
    ] = 1,
    **options: Any,
) -> None:
    """Fit several methods to a data set, compare their predictions, and write the results.

    Examples: `dgp-ppl compare diabetes --methods sgpr,dsvi`, or
    `dgp-ppl compare houses.csv --target price --report`.
    """
    if out is None:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("results") / f"{data_stem(data)}-{stamp}"
    shown, notes = console(), console(stderr=True)
    # A resumed comparison has its figures; to draw them again the first split is fitted again.
    is_drawn = resume and any((out / f"{name}.png").exists() for name in LAST_FIGURES)
    write: Any = None if is_drawn else dgp_ppl.report.write_figures
    if report:
        write = dgp_ppl.report.write_report
    outcome = compare(
        data, None if methods is None else [m.strip() for m in methods.split(",")], splits=splits,
        out=out, resume=resume, report=write,
        executor=None if workers == 1 else local_workers(workers),
        on_row=None if options["quiet"] else lambda row: print_note(notes, _line(row)),
        **keywords(**options),
    )  # fmt: skip
    about, num_splits = outcome.record["data"], outcome.record["config"]["splits"]
    title = f"{about['name']}: {about['rows']} rows, {about['columns']} inputs, "
    title += f"{num_splits} splits; mean ± standard error" if num_splits > 1 else "1 split"
    print_results(shown, outcome, title)
    print_note(shown, f"Written to {out}")
    if report and outcome.fits:
        print_note(shown, f"Report: {out / 'report.html'}")
    elif report:
        print_note(notes, "No figures and no report: no method has a fit of the first split.")
    failed = [r for r in outcome.splits if "error" in r]
    for row in failed:
        print_note(notes, f"{row['method']}, split {row['split']}: {row['error']}")
    if failed:
        raise typer.Exit(1)


def print_results(to: Any, outcome: Comparison, title: str) -> None:
    """Print the tables of a comparison on a `console`."""
    summary = outcome.summary
    headings = {m: h for m, h in PREDICTION_HEADINGS.items() if any(m in r for r in summary)}
    to.print(_table(outcome, headings or PREDICTION_HEADINGS, printable(title)))
    measured = {m for r in summary for m in INFERENCE_HEADINGS if r[m]["mean"] is not None}
    headings = {m: h for m, h in INFERENCE_HEADINGS.items() if m in measured}
    if headings:
        to.print(_table(outcome, headings, "Quality of inference"))
    if any(r["repeated"]["mean"] for r in summary):
        headings = {m: h for m, h in UNSEEN_HEADINGS.items() if m in summary[0]}
        to.print(_table(outcome, headings, "Without held-out rows whose inputs are training rows"))
    for note in density_notes(outcome.splits):
        print_note(to, note)


def _line(row: dict[str, Any]) -> str:
    start = f"split {row['split']}  {row['method']:<8}"
    if "error" in row:
        return f"{start} failed: {row['error']}"
    headings = PREDICTION_HEADINGS | INFERENCE_HEADINGS
    shown = [m for m in row if m in headings and row[m] is not None]
    numbers = "  ".join(f"{headings[m]} {format_number(row[m])}" for m in shown)
    return f"{start} {numbers}"


def _table(outcome: Comparison, headings: dict[str, str], title: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    longest = max((len(row["method"]) for row in outcome.summary), default=0)
    table.add_column("method", no_wrap=True, min_width=longest)
    for heading in headings.values():
        table.add_column(heading, justify="right", min_width=len(heading))
    for row in outcome.summary:
        if any(row[metric]["mean"] is not None for metric in headings):
            cells = [format_summary(metric, row[metric]) for metric in headings]
            table.add_row(row["method"], *cells)
    return table
