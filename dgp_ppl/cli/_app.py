"""The command ``dgp-ppl`` itself: its version, and what Ctrl-C does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import dgp_ppl
from dgp_ppl._errors import Interrupted

__all__ = ["app", "interruptible", "print_note"]


class _Commands(TyperGroup):
    """The commands. Ctrl-C where a command does not say what is lost is one line too."""

    def invoke(self, ctx: Any) -> Any:
        with interruptible():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Deep Gaussian processes as NumPyro programs.",
)


@contextmanager
def interruptible(command: str = "", unwritten: object = None) -> Iterator[None]:
    """At Ctrl-C, print one line and exit with the shell's code 130.

    The line names the `unwritten` file; without one, an `Interrupted` says how to go on.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        text = f"{command}: interrupted".removeprefix(": ")
        if unwritten is not None:
            text += f"; {unwritten} is not written"
        elif isinstance(error, Interrupted):
            text = str(error)
        print(f"dgp-ppl: {text}", file=sys.stderr)
        raise typer.Exit(130) from error


def print_note(console: Any, text: str) -> None:
    """Print a line. Files and pipes get it whole, at any width."""
    console.print(text, highlight=False, soft_wrap=not console.is_terminal)


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
