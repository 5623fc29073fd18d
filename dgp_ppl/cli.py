"""The command ``dgp-ppl``."""

import csv
import datetime
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import dgp_ppl
from dgp_ppl import datasets
from dgp_ppl._errors import DataError
from dgp_ppl.comparison import (
    INFERENCE_HEADINGS,
    METHODS,
    MODELS,
    PREDICTION_HEADINGS,
    Comparison,
    compare,
    format_number,
    format_summary,
)

__all__ = ["app", "main"]

# Headings of the help's groups of options.
_DATA, _MODEL, _FIT, _RESULTS = "Data", "Methods and model", "Fit", "Results"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Deep Gaussian processes as NumPyro programs.",
)


def main() -> None:
    """Run the command. Bad input prints one line and exits with code 2."""
    try:
        app()
    except (DataError, ValueError) as error:
        if not isinstance(error, DataError) and not str(error).startswith("compare:"):
            raise
        print(f"dgp-ppl: {error}", file=sys.stderr)
        sys.exit(2)


def _version(value: bool) -> None:
    if value:
        print(f"dgp_ppl {dgp_ppl.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command("compare")
def _compare(
    data: Annotated[
        str, typer.Argument(help="Name of a data set (see `dgp-ppl datasets`), or a file.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Methods to compare, separated by commas: {', '.join(METHODS)}.",
            show_default="sgpr,svgp,dsvi; for classes svgp,dsvi",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help=f"Model of the deep methods: {', '.join(MODELS)}.", rich_help_panel=_MODEL
        ),
    ] = "deep_gp",
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="Likelihood: gaussian for regression, probit or logit for two classes, softmax "
            "or robust_max for more.",
            show_default="gaussian, probit or softmax",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option(help="GP layers of the deep methods.", rich_help_panel=_MODEL)
    ] = 2,
    inducing: Annotated[
        int, typer.Option(help="Inducing inputs of each layer.", rich_help_panel=_MODEL)
    ] = 100,
    width: Annotated[
        int | None,
        typer.Option(
            help="Outputs of each hidden layer.",
            show_default="min(30, number of inputs)",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    share_kernel: Annotated[
        bool | None,
        typer.Option(
            "--share-kernel/--own-kernels",
            help="One kernel for all outputs of a hidden layer, or one for each.",
            show_default="own, unless a layer has very many inputs",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.", rich_help_panel=_FIT)] = 6000,
    batch: Annotated[int, typer.Option(help="Rows of a minibatch.", rich_help_panel=_FIT)] = 1000,
    learning_rate: Annotated[
        float,
        typer.Option(
            help="Initial learning rate of Adam; it decays by a cosine.", rich_help_panel=_FIT
        ),
    ] = 0.1,
    draws: Annotated[
        int,
        typer.Option(help="Draws kept from each chain, for sghmc and nuts.", rich_help_panel=_FIT),
    ] = 250,
    chains: Annotated[
        int, typer.Option(help="Chains, for sghmc and nuts.", rich_help_panel=_FIT)
    ] = 2,
    seed: Annotated[
        int, typer.Option(help="Seed of the random splits and the fits.", rich_help_panel=_FIT)
    ] = 0,
    restarts: Annotated[
        int,
        typer.Option(
            help="Fits of each method with different keys; their predictions are mixed.",
            rich_help_panel=_FIT,
        ),
    ] = 1,
    x64: Annotated[
        bool,
        typer.Option("--x64", help="Compute in float64 instead of float32.", rich_help_panel=_FIT),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            help="Column to predict; required for .csv and .parquet files. Text is classes.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to leave out; give it several times, or names separated by commas.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of numbers to take as categories; as for --drop. The target's numbers "
            "are then classes.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse a table with text, dates or missing cells.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    splits: Annotated[
        int | None,
        typer.Option(
            help="Number of splits: those that come with the data, else random ones with 90 % of "
            "the rows for training.",
            show_default="3, or all if the data come with fewer",
            rich_help_panel=_DATA,
        ),
    ] = None,
    split_key: Annotated[
        str,
        typer.Option(
            help="Name of the array of an .npz file that holds the splits.", rich_help_panel=_DATA
        ),
    ] = datasets.DEFAULT_SPLITS,
    samples: Annotated[
        int,
        typer.Option(
            help="Draws through the layers for each prediction.", rich_help_panel=_RESULTS
        ),
    ] = 100,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help="Estimate the log evidence and how far each ELBO is below it (minutes per fit).",
            rich_help_panel=_RESULTS,
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results.",
            show_default="results/DATA-TIME",
            rich_help_panel=_RESULTS,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(help="Replace an earlier comparison in the folder.", rich_help_panel=_RESULTS),
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Also write report.html, one page with all tables and figures.",
            rich_help_panel=_RESULTS,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=_RESULTS)
    ] = False,
) -> None:
    """Fit several methods to a data set, compare their predictions, and write the results.

    Examples: `dgp-ppl compare diabetes --methods svgp,dsvi`, or
    `dgp-ppl compare houses.csv --target price --report`.
    """
    from rich.console import Console

    if x64:
        import jax

        jax.config.update("jax_enable_x64", True)
    if out is None:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        stem = Path(data).stem if data.lower().endswith((".csv", ".npz", ".parquet")) else data
        out = Path("results") / f"{stem.replace('/', '-').replace(':', '-')}-{stamp}"
    notes = Console(stderr=True)
    outcome = compare(
        data,
        None if methods is None else [m.strip() for m in methods.split(",")],
        model=model,
        likelihood=likelihood,
        depth=depth,
        inducing=inducing,
        width=width,
        share_kernel=share_kernel,
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        splits=splits,
        seed=seed,
        restarts=restarts,
        samples=samples,
        draws=draws,
        chains=chains,
        evidence=evidence,
        target=target,
        drop=_column_names(drop),
        categorical=_column_names(categorical),
        strict=strict,
        split_key=split_key,
        out=out,
        overwrite=overwrite,
        report=report,
        progress=not quiet,
        on_row=None if quiet else lambda row: notes.print(_line(row), highlight=False),
    )
    console = Console()
    _print_results(console, outcome)
    console.print(f"Written to {out}", soft_wrap=True)
    if report and outcome.fits:
        console.print(f"Report: {out / 'report.html'}", soft_wrap=True)
    elif report:
        notes.print("No figures and no report: every method failed on the first split.")
    failed = [r for r in outcome.splits if "error" in r]
    for row in failed:
        notes.print(f"{row['method']}, split {row['split']}: {row['error']}", highlight=False)
    if failed:
        raise typer.Exit(1)


def _column_names(given: list[str] | None) -> list[str]:
    """Return the names in options; a name with a comma is quoted, as in CSV."""
    rows = csv.reader(given or [], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def _print_results(console: Any, outcome: Comparison) -> None:
    """Print the tables of a comparison, and its notes on the evidence."""
    data, num_splits = outcome.record["data"], outcome.record["config"]["splits"]
    title = f"{data['name']}: {data['rows']} rows, {data['columns']} inputs, "
    title += f"{num_splits} splits; mean ± standard error" if num_splits > 1 else "1 split"
    summary = outcome.summary
    headings = {m: h for m, h in PREDICTION_HEADINGS.items() if any(m in r for r in summary)}
    console.print(_table(outcome, headings or PREDICTION_HEADINGS, title))
    measured = {m for r in summary for m in INFERENCE_HEADINGS if r[m]["mean"] is not None}
    headings = {m: h for m, h in INFERENCE_HEADINGS.items() if m in measured}
    if headings:
        console.print(_table(outcome, headings, "Quality of inference"))
    evidence_notes = {
        (r["method"], r["evidence_note"]) for r in outcome.splits if "evidence_note" in r
    }
    for method, note in sorted(evidence_notes):
        console.print(f"Evidence of {method}: {note}", highlight=False)


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
    console.print(
        "To add data sets, set DGP_PPL_DATA to a folder of .npz files. `dgp-ppl compare` also "
        "takes openml:NAME and .csv, .parquet and .npz files."
    )


def _line(row: dict[str, Any]) -> str:
    """Format one fit as a line."""
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
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    longest = max((len(row["method"]) for row in outcome.summary), default=0)
    table.add_column("method", no_wrap=True, min_width=longest)
    for heading in headings.values():
        table.add_column(heading, justify="right", min_width=len(heading))
    for row in outcome.summary:
        if any(row[metric]["mean"] is not None for metric in headings):
            table.add_row(
                row["method"], *(format_summary(metric, row[metric]) for metric in headings)
            )
    return table
