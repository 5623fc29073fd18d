"""The command ``dgp-ppl``."""

import datetime
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import dgp_ppl
from dgp_ppl import datasets
from dgp_ppl._errors import DataError
from dgp_ppl.comparison import INFERENCE, MODELS, SCORES, Comparison, cell, compare, number

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Deep Gaussian processes as probabilistic programs.",
)


def main() -> None:
    """Run the command; bad input ends with exit code 2 and one line."""
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
    data: Annotated[str, typer.Argument(help="A name (see `dgp-ppl datasets`) or a file.")],
    methods: Annotated[
        str | None,
        typer.Option(help="Comma-separated.", show_default="sgpr,svgp,dsvi; of classes svgp,dsvi"),
    ] = None,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "deep_gp",
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="Of classes: probit or logit for two, softmax or robust_max.",
            show_default="gaussian, probit, softmax",
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="GP layers of the deep methods.")] = 2,
    inducing: Annotated[int, typer.Option(help="Inducing inputs of every layer.")] = 100,
    width: Annotated[
        int | None, typer.Option(help="Outputs of hidden layers.", show_default="min(30, inputs)")
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 6000,
    batch: Annotated[int, typer.Option(help="Rows of a minibatch.")] = 1000,
    learning_rate: Annotated[float, typer.Option(help="Adam's, before cosine decay.")] = 0.1,
    splits: Annotated[
        int | None,
        typer.Option(help="The file's first ones, or random 90/10.", show_default="3, or all"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random splits and fits.")] = 0,
    samples: Annotated[int, typer.Option(help="Passes of a prediction.")] = 100,
    draws: Annotated[int, typer.Option(help="Draws of each chain, of sghmc and nuts.")] = 250,
    chains: Annotated[int, typer.Option(help="Their chains.")] = 2,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Measure how far each bound is below log p(y).")
    ] = False,
    target: Annotated[
        str | None, typer.Option(help="Column to predict, for .csv and .parquet.")
    ] = None,
    split_key: Annotated[
        str, typer.Option(help="Array of an .npz file with the splits.")
    ] = datasets.DEFAULT_SPLITS,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to.", show_default="results/DATA-TIME")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier comparison's files.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Write report.html, one page of all of it.")
    ] = False,
    x64: Annotated[bool, typer.Option("--x64", help="Compute in float64.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Fit the methods to each split of a data set; print and write a table."""
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
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        splits=splits,
        seed=seed,
        samples=samples,
        draws=draws,
        chains=chains,
        evidence=evidence,
        target=target,
        split_key=split_key,
        out=out,
        overwrite=overwrite,
        report=report,
        progress=not quiet,
        on_row=None if quiet else lambda row: notes.print(_line(row), highlight=False),
    )
    console = Console()
    data_, config = outcome.record["data"], outcome.record["config"]
    several = f"{config['splits']} splits; mean ± standard error"
    title = f"{data_['name']}: {data_['rows']} rows, {data_['columns']} inputs, "
    title += several if config["splits"] > 1 else "1 split"
    scored = {m: h for m, h in SCORES.items() if any(m in r for r in outcome.summary)}
    console.print(_table(outcome, scored or SCORES, title))
    known = {m for m in INFERENCE for r in outcome.summary if r[m]["mean"] is not None}
    if known:
        headings = {m: h for m, h in INFERENCE.items() if m in known}
        console.print(_table(outcome, headings, "How near to the posterior"))
    told = {(r["method"], r["evidence_note"]) for r in outcome.splits if "evidence_note" in r}
    for method, note in sorted(told):
        console.print(f"Evidence of {method}: {note}", highlight=False)
    console.print(f"Written to {out}", soft_wrap=True)
    if report and outcome.fits:
        console.print(f"Report: {out / 'report.html'}", soft_wrap=True)
    elif report:
        notes.print("No report and no pictures: no method could be fitted to the first split.")
    failed = [r for r in outcome.splits if "error" in r]
    for row in failed:
        notes.print(f"{row['method']}, split {row['split']}: {row['error']}", highlight=False)
    if failed:
        raise typer.Exit(1)


@app.command("datasets")
def _datasets() -> None:
    """List the data sets that need no network."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "rows", "columns", "task", "source"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns") else "left")
    for info in datasets.names():
        table.add_row(info.name, str(info.rows), str(info.columns), info.task, info.source)
    console = Console()
    console.print(table)
    console.print("More: set DGP_PPL_DATA to a folder of .npz files, or openml:NAME.")


def _line(row: dict[str, Any]) -> str:
    """One fit in a line."""
    start = f"split {row['split']}  {row['method']:<8}"
    if "error" in row:
        return f"{start} failed: {row['error']}"
    headings = SCORES | INFERENCE
    shown = [m for m in row if m in headings and row[m] is not None]
    numbers = "  ".join(f"{headings[m]} {number(row[m])}" for m in shown)
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
            table.add_row(row["method"], *(cell(metric, row[metric]) for metric in headings))
    return table
