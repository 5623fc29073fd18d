"""Options that several commands share, and the check of files to write."""

from __future__ import annotations

import csv
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dgp_ppl._errors import DataError
from dgp_ppl.comparison._setting import setting_options

__all__ = [
    "X64", "Categorical", "Data", "Drop", "Overwrite", "Quiet", "Seed", "SplitKey", "Strict",
    "Target", "check_output", "column_names", "data_stem", "use_x64", "with_setting",
]  # fmt: skip

# Headings of the help's groups of options.
_DATA, _FIT, _RESULTS = "Data", "Fit", "Results"

Data = Annotated[
    str,
    typer.Argument(
        help="Name of a data set (see `dgp-ppl datasets`), a file, or a folder of .parquet files."
    ),
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
Seed = Annotated[
    int, typer.Option(help="Seed of the random splits and the fits.", rich_help_panel=_FIT)
]
X64 = Annotated[
    bool,
    typer.Option("--x64", help="Compute in float64 instead of float32.", rich_help_panel=_FIT),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace earlier results.", rich_help_panel=_RESULTS)
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=_RESULTS)]


def with_setting(*without: str) -> Callable[[Any], Any]:
    """Give the options of `comparison.Setting` to a command that takes ``**options``.

    Args:
        *without: names of options that the command lacks.
    """

    def decorate(command: Any) -> Any:
        signature = inspect.signature(command, eval_str=True)
        *own, _ = signature.parameters.values()
        added = []
        for o in setting_options():
            if o.name in without:
                continue
            flags = [f"--{o.name.replace('_', '-')}"] if o.type is bool else []
            option = typer.Option(
                *flags,
                help=f"{o.help} One of {', '.join(o.choices)}." if o.choices else o.help,
                show_default=o.default_text or True,
                rich_help_panel=o.group,
                hidden=o.hidden,
            )
            kind = inspect.Parameter.KEYWORD_ONLY
            annotation = Annotated[o.type, option]
            added.append(inspect.Parameter(o.name, kind, default=o.default, annotation=annotation))
        command.__signature__ = signature.replace(parameters=[*own, *added])
        # typer reads types from here.
        command.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
        return command

    return decorate


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
    """Raise `DataError` unless a file can be written, before any work is done.

    Args:
        path: the file.
        overwrite: whether an earlier file may be replaced.
        suffixes: how its name may end.
        inputs: files that are read, which must not be replaced.
    """
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
    elif not os.access(folder, os.W_OK):
        fault = f": the folder {folder} cannot be written to; choose another name"
    else:
        return
    raise DataError(f"{path}{fault}")
