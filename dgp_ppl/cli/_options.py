"""Options that several commands share, as types of their arguments."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from dgp_ppl.comparison import KERNELS, MODELS

__all__ = [
    "X64",
    "Batch",
    "Categorical",
    "CategoryKernel",
    "Chains",
    "Data",
    "Depth",
    "Draws",
    "Drop",
    "Inducing",
    "Kernel",
    "LearningRate",
    "Likelihood",
    "Model",
    "Overwrite",
    "Quiet",
    "Samples",
    "Seed",
    "SplitKey",
    "Steps",
    "Strict",
    "Target",
    "Width",
    "column_names",
    "data_stem",
    "use_x64",
]

# Headings of the help's groups of options.
_DATA, _MODEL, _FIT, _RESULTS = "Data", "Methods and model", "Fit", "Results"

Data = Annotated[
    str,
    typer.Argument(
        help="Name of a data set (see `dgp-ppl datasets`), a file, or a folder of .parquet files."
    ),
]
Model = Annotated[
    str,
    typer.Option(help=f"Model of the deep methods: {', '.join(MODELS)}.", rich_help_panel=_MODEL),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        help="Likelihood: gaussian, student_t or heteroscedastic for regression, probit or logit "
        "for two classes, softmax or robust_max for more.",
        show_default="gaussian, probit or softmax",
        rich_help_panel=_MODEL,
    ),
]
Depth = Annotated[int, typer.Option(help="GP layers of the deep methods.", rich_help_panel=_MODEL)]
Inducing = Annotated[
    int, typer.Option(help="Inducing inputs of each layer.", rich_help_panel=_MODEL)
]
Width = Annotated[
    int | None,
    typer.Option(
        help="Outputs of each hidden layer.",
        show_default="min(30, number of inputs)",
        rich_help_panel=_MODEL,
    ),
]
Kernel = Annotated[
    str, typer.Option(help=f"Kernel of every layer: {', '.join(KERNELS)}.", rich_help_panel=_MODEL)
]
CategoryKernel = Annotated[
    bool,
    typer.Option(
        "--category-kernel",
        help="Learn the covariance of the categories of each column of text, in place of "
        "a lengthscale for each.",
        rich_help_panel=_MODEL,
    ),
]
Steps = Annotated[int, typer.Option(help="Optimiser steps.", rich_help_panel=_FIT)]
Batch = Annotated[int, typer.Option(help="Rows of a minibatch.", rich_help_panel=_FIT)]
LearningRate = Annotated[
    float,
    typer.Option(
        help="Initial learning rate of Adam; it decays by a cosine.", rich_help_panel=_FIT
    ),
]
Draws = Annotated[
    int,
    typer.Option(help="Draws kept from each chain, for sghmc and nuts.", rich_help_panel=_FIT),
]
Chains = Annotated[int, typer.Option(help="Chains, for sghmc and nuts.", rich_help_panel=_FIT)]
Seed = Annotated[
    int, typer.Option(help="Seed of the random splits and the fits.", rich_help_panel=_FIT)
]
X64 = Annotated[
    bool,
    typer.Option("--x64", help="Compute in float64 instead of float32.", rich_help_panel=_FIT),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="Column to predict; required for .csv and .parquet files. Text is classes.",
        rich_help_panel=_DATA,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="Column to leave out; give it several times, or names separated by commas.",
        rich_help_panel=_DATA,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of numbers to take as categories; as for --drop. The target's numbers "
        "are then classes.",
        rich_help_panel=_DATA,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse a table with text, dates or missing cells.",
        rich_help_panel=_DATA,
    ),
]
SplitKey = Annotated[
    str,
    typer.Option(
        help="Name of the array of an .npz file that holds the splits.", rich_help_panel=_DATA
    ),
]
Samples = Annotated[
    int,
    typer.Option(help="Draws through the layers for each prediction.", rich_help_panel=_RESULTS),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace earlier results.", rich_help_panel=_RESULTS)
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=_RESULTS)]


def column_names(given: list[str] | None) -> list[str]:
    """Return the names in options; a name with a comma is quoted, as in CSV."""
    rows = csv.reader(given or [], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def data_stem(data: str) -> str:
    """Return a data set's name as part of a file's name."""
    data = data.rstrip("/")
    stem = Path(data).stem if data.lower().endswith((".csv", ".npz", ".parquet")) else data
    return stem.replace("/", "-").replace(":", "-")


def use_x64(wanted: bool) -> None:
    """Compute in float64 from now on, if wanted."""
    import jax

    if wanted:
        jax.config.update("jax_enable_x64", True)
