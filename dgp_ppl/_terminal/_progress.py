"""The progress of a run: a bar on terminals and in notebooks, and lines in files and pipes."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from tqdm.auto import tqdm

__all__ = ["Progress"]

_SECONDS = 10.0  # between two lines, at least
_PARTS = 10  # lines of a run, at most


class Progress:
    """The progress of a run, as a context.

    A bar needs carriage returns, which files and pipes keep. There it is a line at the end, and
    before it one at every tenth of the steps, but at most every ten seconds.

    Args:
        show: whether to show anything; a string is the label.
        total: number of steps; None if it is not known.
        label: what is run, if `show` is no string.
        unit: name of the steps.
        done: steps done before.
    """

    def __init__(
        self, show: bool | str, total: int | None, label: str, unit: str = "steps", done: int = 0
    ) -> None:
        self.label, self.unit = show if isinstance(show, str) else label, unit
        self.total, self.done, self.note = total, done, ""
        self._begun = self._written_at = time.monotonic()
        self._written = self._part
        self._bar: Any = None
        self._writes = bool(show) and not _shows_bars()
        if show and not self._writes:
            self._bar = tqdm(
                desc=self.label, total=total, initial=done, leave=False, unit=f" {unit}"
            )

    def update(self, num: int, note: str = "") -> None:
        """Add finished steps.

        Args:
            num: number of steps since the last update.
            note: what to say of the last one, such as the value of the objective.
        """
        self.done += num
        self.note = note or self.note
        if self._bar is not None:
            self._bar.update(num)
            self._bar.set_postfix_str(self.note, refresh=False)
        is_due = time.monotonic() - self._written_at >= _SECONDS and self._part > self._written
        if self._writes and is_due and (self.total is None or self.done < self.total):
            self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._writes:
            self._write()

    @property
    def _part(self) -> int:
        return self.done if self.total is None else _PARTS * self.done // max(1, self.total)

    def _write(self) -> None:
        seconds = time.monotonic() - self._begun
        took = f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
        note = f", {self.note}" if self.note else ""
        of = "" if self.total is None else f" of {self.total}"
        line = f"{self.label}: {self.done}{of} {self.unit} in {took}{note}\n"
        sys.stderr.write(line)  # at once, so that lines of two programs do not mix
        sys.stderr.flush()
        self._written, self._written_at = self._part, time.monotonic()


def _shows_bars() -> bool:
    """Return whether the standard error stream is a terminal, or a notebook's."""
    stream = sys.stderr
    return stream.isatty() or type(stream).__module__.startswith("ipykernel")
