"""`dgp-ppl predict`: predictions of a kept fit at the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dgp_ppl._errors import DataError, one_line
from dgp_ppl._files import write_tables
from dgp_ppl.cli._app import app, console, print_note, writing
from dgp_ppl.cli._options import check_output, column_names, use_x64
from dgp_ppl.cli._show import comparison_of
from dgp_ppl.datasets._read import Table, table_chunks
from dgp_ppl.persistence import load
from dgp_ppl.persistence._archive import ArchiveReader
from dgp_ppl.prediction import Prediction

_OUT = "{}-predictions.csv"


@app.command("predict")
def _predict(
    fit: Annotated[Path, typer.Argument(help="A file of `dgp-ppl fit`.")],
    data: Annotated[Path, typer.Argument(help="A .csv or .parquet file, or a folder of Parquet.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The predictions, .csv or .parquet.", show_default=_OUT.format("DATA")),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option(help="Column to copy; or several, separated by commas.")
    ] = None,
    quantiles: Annotated[
        str, typer.Option(help="Levels of the quantiles, separated by commas.")
    ] = "0.05,0.5,0.95",
    samples: Annotated[int, typer.Option(help="Draws through the layers.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0, max=2**32 - 1)] = 0,
    chunk: Annotated[
        int,
        typer.Option(
            help="Rows in memory at a time. Each chunk has its own noise in the layers, so another "
            "size changes predictions of deep fits by their Monte Carlo error.",
            min=1,
        ),
    ] = 10_000,
    unseen: Annotated[
        str,
        typer.Option(
            help="What to do about new categories: error, or zeros, which takes them as none of "
            "the known categories. Of two categories the first is zero too."
        ),
    ] = "error",
    trusted: Annotated[
        list[str] | None,
        typer.Option(help="Module of your own that the fit's file may import, and run; as --id."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Predict the rows of a table with a fit of `dgp-ppl fit`.

    Numbers get a mean, a standard deviation and quantiles, in the order of the rows.

    Classes get the most probable class, and the probability of each.

    A row that cannot be predicted is an error, and so is a new category, unless --unseen zeros.

    Example: `dgp-ppl predict price.dgp new.csv --id house --out predictions.csv`.
    """
    import pyarrow as pa
    from jax import random

    out = Path(_OUT.format(data.stem)) if out is None else out
    check_output(out, overwrite, (".csv", ".parquet"), [fit, data])
    levels, ids = _levels(quantiles), column_names(id)
    with writing("predict", out):
        archive = ArchiveReader(fit)
        with archive.reading():
            about = comparison_of(archive.about()["info"])
        use_x64(bool(about and about["config"].get("x64")))
        kept = load(fit, column_names(trusted))
        columns = kept.preprocessor
        if columns is None or not about:
            raise DataError(
                f"{fit} was not written by `dgp-ppl fit`, and does not say what its inputs and "
                "targets are; predict with it in Python: dgp_ppl.load"
            )
        if unseen == "zeros" and about["config"].get("category_kernel"):
            raise DataError(
                "predict: unseen is 'zeros', and the fit has a kernel over categories, by which "
                "the function of a row of none of them is 0 for certain; leave these rows out, or "
                "fit without --category-kernel"
            )
        notes, done = console(stderr=True, quiet=quiet), 0

        def predicted() -> Iterator[Any]:
            nonlocal done
            for raw, table in table_chunks(data, chunk, texts=columns.text_columns):
                if missing := [name for name in ids if name not in raw.column_names]:
                    raise DataError(
                        f"{table.where}: id has {missing[0]!r}, and there is no such column; the "
                        f"columns are {', '.join(map(repr, raw.column_names))}"
                    )
                try:
                    found = _summary(
                        kept.predict(random.key(seed), table, unseen=unseen, num_samples=samples),
                        about, levels,
                    )  # fmt: skip
                except DataError:
                    raise
                except Exception as error:  # whatever the file's model says to these inputs
                    raise DataError(
                        f"{fit} cannot predict {table.where} ({type(error).__name__}: "
                        f"{one_line(error)}); take another copy of it, or fit again"
                    ) from error
                _check(found, table)
                if clash := [name for name in ids if name in found]:
                    raise DataError(
                        f"{table.where}: id has {clash[0]!r}, which is also a column of the "
                        "predictions; rename the column"
                    )
                yield pa.table({name: raw[name] for name in ids} | found)
                done += len(table)
                status.update(f"{done:,} rows predicted")

        with notes.status("Loading the fit") as status:
            write_tables(out, predicted(), new=not overwrite)
    print_note(notes, f"{done:,} row{'s' * (done != 1)} predicted: {out}")


def _levels(text: str) -> list[float]:
    try:
        levels = [float(part) for part in text.split(",")]
    except ValueError:
        levels = [0.0]
    names = {f"{100 * level:.6g}" for level in levels}
    if not all(0 < level < 1 for level in levels) or len(names) < len(levels):
        raise DataError(
            f"predict: quantiles is {text!r}, wanted numbers between 0 and 1 that differ in six "
            "digits, separated by commas, such as 0.05,0.5,0.95"
        )
    return levels


def _summary(
    prediction: Prediction, about: dict[str, Any], levels: list[float]
) -> dict[str, np.ndarray]:
    """Return the columns of the predictions: moments and quantiles, or classes."""
    if about["task"] == "regression":
        found = {"mean": prediction.mean, "sd": np.sqrt(prediction.var)}
        names = [f"q{100 * level:02.6g}" for level in levels]
        return found | dict(zip(names, prediction.quantile(np.array(levels)), strict=True))
    classes, probabilities = about["classes"], np.asarray(prediction.probabilities)
    columns = {f"P({c})": p for c, p in zip(classes, probabilities.T, strict=True)}
    return {"class": np.array(classes)[probabilities.argmax(axis=1)], **columns}


def _check(found: dict[str, np.ndarray], table: Table) -> None:
    """Raise `DataError` about the first row whose prediction is not finite."""
    bad = ~np.all([np.isfinite(v) for v in found.values() if v.dtype.kind == "f"], axis=0)
    if bad.any():
        raise DataError(
            f"{table.where}: the prediction of {table.place(int(bad.argmax()))} is not finite "
            f"({int(bad.sum())} such rows): are its numbers in the units of the training data? "
            "Correct them, or leave the rows out"
        )
