"""The command ``dgp-ppl`` itself: its version, and what Ctrl-C does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import dgp_ppl
from dgp_ppl._errors import Interrupted, printable


class _Commands(TyperGroup):
    """The commands. Ctrl-C ends them in one line, with the shell's code 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            text = str(error) if isinstance(error, Interrupted) else "interrupted"
            print(f"dgp-ppl: {printable(text)}", file=sys.stderr)
            raise typer.Exit(130) from error


app = typer.Typer(
    cls=_Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    help="Deep Gaussian processes as NumPyro programs.",
)  # fmt: skip


@contextmanager
def writing(command: str, path: Path) -> Iterator[None]:
    """Let Ctrl-C say that a file is not written."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"{command}: interrupted; {path} is not written", None) from error


def console(**options: Any) -> Any:
    """Return rich's console, for which the names and paths in a text are no markup."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **options)


def print_note(to: Any, text: str) -> None:
    """Print a line. Files and pipes get it whole, at any width."""
    to.print(printable(text), soft_wrap=not to.is_terminal)


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
