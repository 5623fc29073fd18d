"""The start of the command ``dgp-ppl``: Ctrl-C ends it in one line, whatever it does.

It is a module beside the package, because it has to be there before the package, which takes
seconds to load.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

__all__ = ["main"]

_INTERRUPTED = 130  # the shell's code for a command that Ctrl-C ended


def main() -> None:
    """Load the command, and run it."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:  # not ignored, as in the background of a script
        signal.signal(signal.SIGINT, _stop)
    from dgp_ppl.cli import main as run

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:
        _stop()
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            _end()
        raise


def _stop(*_: Any) -> None:
    """Handle Ctrl-C while the command loads, when imports would turn it into other errors."""
    print("dgp-ppl: interrupted", file=sys.stderr)
    _end()


def _end() -> None:
    """End the process at once: threads of JAX that still compute can crash an orderly end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed, or in use
            stream.flush()
    os._exit(_INTERRUPTED)
