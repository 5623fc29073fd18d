"""The start of the command ``dgp-ppl``: every end is orderly, with one line for what went wrong.

It loads typer, JAX and the rest when Ctrl-C can end the command in one line already.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from typing import Any, NoReturn

__all__ = ["load", "main", "run"]

_INTERRUPTED = 130  # the shell's code for a command that Ctrl-C ended
_EXTRAS = {
    "typer": "cli", "rich": "cli", "pyarrow": "tables", "jinja2": "report",
    "matplotlib": "plots", "arviz_plots": "plots", "catboost": "rivals", "ngboost": "rivals",
}  # fmt: skip
"""The extra of `dgp_ppl` that installs a module."""


def main() -> None:
    """Load the command, and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)  # else ignored, as in the background of a script
    try:
        run()
    except KeyboardInterrupt:
        _stop()
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            _end()
        raise


def run() -> None:
    """Load the command, and run it; bad input and missing packages end in one line and code 2."""
    try:
        with contextlib.suppress(AttributeError):  # of streams that are no files
            sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore
        app = load()
        if signal.getsignal(signal.SIGINT) is _stop:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = app(standalone_mode=False)
            print(end="", flush=True)
            sys.exit(code)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(f"{error.name}".split(".")[0])
        if extra is None:
            raise
        _fail(f"{error.name} is not installed; pip install 'dgp_ppl[{extra}]'")
    except Exception as error:
        from concurrent.futures import BrokenExecutor

        from dgp_ppl._errors import DataError, printable

        if message := getattr(error, "format_message", None):  # typer's, of options
            _fail(printable(" ".join(message().split())))
        if isinstance(error, DataError | BrokenExecutor):
            _fail(printable(str(error).removeprefix("compare: ")))
        if isinstance(error, OSError) and (error.filename is not None or not _flushed()):
            _fail(printable(f"{error.filename or 'standard output'}: {error.strerror}"))
        raise


def load() -> Any:
    """Return the app of typer, with all commands."""
    from dgp_ppl.cli import _compare, _fit, _predict, _show  # noqa: F401
    from dgp_ppl.cli._app import app

    return app


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the path and the text of a line of source."""
    from dgp_ppl._errors import printable

    text = printable(" ".join(str(message).split()))
    print(f"dgp-ppl: warning: {text}", file=sys.stderr)


def _flushed() -> bool:
    """Return whether standard output can be written; else what is left of it goes nowhere."""
    try:
        print(end="", flush=True)
    except OSError:  # such as a full disk; Python would try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _fail(text: str) -> NoReturn:
    _flushed()
    if text:  # else typer has shown a help text
        print(f"dgp-ppl: {text}", file=sys.stderr)
    sys.exit(2)


def _stop(*_: Any) -> None:
    """Handle Ctrl-C while the command loads, when imports would turn it into other errors."""
    print("dgp-ppl: interrupted", file=sys.stderr)
    _end()


def _end() -> None:
    """End the process without its last steps, in which threads of JAX that compute can crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed, or in use
            stream.flush()
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
