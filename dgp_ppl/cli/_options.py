"""Options that several commands share, and the check of files to write."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dgp_ppl._errors import DataError
from dgp_ppl.comparison._setting import FIT, RESULTS, Option
from dgp_ppl.datasets._npz import DEFAULT_SPLITS

_ROOM = 2**20  # bytes that a file may take at least
DATA = "Data"  # a heading of the help, as FIT and RESULTS


def option(help: str, group: str, *flags: str, **more: Any) -> Any:
    """Return an option of a command; a switch has one flag, so that there is no ``--no-...``."""
    return typer.Option(*flags, help=help, rich_help_panel=group, **more)


Data = Annotated[
    str,
    typer.Argument(
        help="Name of a data set (see `dgp-ppl datasets`), a file, or a folder of .parquet files."
    ),
]

SHARED = tuple(
    Option(default, text, group, name=name, type=kind)
    for name, kind, default, group, text in (
        ("seed", int, 0, FIT, "Seed of the random splits and the fits."),
        ("x64", bool, False, FIT, "Compute in float64 instead of float32."),
        ("target", str | None, None, DATA,
         "Column to predict; required for .csv and .parquet files. Text is classes."),
        ("drop", list[str] | None, None, DATA,
         "Column to leave out; give it several times, or names separated by commas."),
        ("categorical", list[str] | None, None, DATA,
         "Column of numbers to take as categories; as for --drop. The target's numbers are then "
         "classes."),
        ("groups", str | None, None, DATA,
         "Column whose rows with the same cell stay on one side of each random split; or inputs, "
         "for rows with the same inputs."),
        ("strict", bool, False, DATA, "Refuse a table with text, dates or missing cells."),
        ("split_key", str, DEFAULT_SPLITS, DATA,
         "Name of the array of an .npz file that holds the splits."),
        ("overwrite", bool, False, RESULTS, "Replace earlier results."),
        ("quiet", bool, False, RESULTS, "Show no progress."),
    )
)  # fmt: skip
"""The options of `compare` and `fit` beside their own and the options of a `Setting`."""


def annotation(o: Option) -> Any:
    flags = [f"--{o.name.replace('_', '-')}"] if o.type is bool else []
    text = f"{o.help} One of {', '.join(o.choices)}." if o.choices else o.help
    shown = o.default_text or True
    return Annotated[o.type, option(text, o.group, *flags, show_default=shown, hidden=o.hidden)]


def keywords(x64: bool, quiet: bool, **options: Any) -> dict[str, Any]:
    """Return keywords of `compare` for the options of a command."""
    use_x64(x64)
    columns = {name: column_names(options[name]) for name in ("drop", "categorical")}
    return options | columns | {"progress": not quiet}


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


def check_output(
    path: Path, overwrite: bool, suffixes: Sequence[str], inputs: Sequence[Path | str] = ()
) -> None:
    """Raise `DataError` unless a file can be written, and is none of the `inputs`."""
    folder = Path(os.path.realpath(path)).parent
    if path.suffix.lower() not in suffixes:
        fault = f" ends in {path.suffix!r}, wanted {' or '.join(suffixes)}"
    elif path.is_dir():
        fault = " is a folder, wanted a file; choose another name"
    elif any(os.path.realpath(other) == os.path.realpath(path) for other in inputs):
        fault = " is an input, wanted another file; choose another name"
    elif path.exists() and not overwrite:
        fault = " exists; choose another name, or pass --overwrite"
    elif not folder.is_dir():
        fault = f": there is no folder {folder}; make it, or choose another name"
    else:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(_ROOM))
            return
        except OSError as error:
            fault = (
                f": the folder {folder} cannot be written to ({error.strerror}); make room there, "
                "or choose another name"
            )
    raise DataError(f"{path}{fault}")
