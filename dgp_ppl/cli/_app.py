"""The command ``dgp-ppl`` itself: its version, and what happens to errors."""

import sys
from typing import Annotated

import typer

import dgp_ppl
from dgp_ppl._errors import DataError

__all__ = ["app", "main"]

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
