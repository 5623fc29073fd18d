"""What a terminal shows while a program compiles and no bar is there."""

from __future__ import annotations

import sys
import threading
import time
from typing import ClassVar

_FIRST = 3.0  # seconds without a word


def on_terminal() -> bool:
    """Return whether errors are shown on a terminal; programs replace `sys.stderr` by anything."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # None, an object that only writes, or closed
        return False


class Waiting:
    """Says on a terminal, after three seconds, for how long a program compiles or runs.

    It is silent within another, such as a bar's, which does not `tell`; and in a user's threads.
    """

    others: ClassVar[int] = 0  # of the main thread, that have begun and not ended

    def __init__(self, *, tell: bool = True) -> None:
        self._tells = tell

    def __enter__(self) -> None:
        self._ended, self._thread = threading.Event(), None
        self._counts = threading.current_thread() is threading.main_thread()
        if self._counts:
            if self._tells and not Waiting.others and on_terminal():
                self._thread = threading.Thread(target=self._tell, daemon=True)
                self._thread.start()
            Waiting.others += 1

    def __exit__(self, *error: object) -> None:
        if self._counts:  # by the instance: a bar may end after the module, with the process
            type(self).others -= 1
        self._ended.set()
        if self._thread is not None:  # it clears its line before others write
            self._thread.join()

    def _tell(self) -> None:
        begin, text = time.monotonic(), ""
        while not self._ended.wait(1.0 if text else _FIRST):
            text = f"\rdgp_ppl: compiling or running, {time.monotonic() - begin:.0f} s"
            print(text, end="", file=sys.stderr, flush=True)
        if text:
            print("\r" + " " * len(text) + "\r", end="", file=sys.stderr, flush=True)
