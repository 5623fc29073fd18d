"""The progress bar of long runs."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from tqdm.auto import tqdm

from dgp_ppl._checks import check_kind
from dgp_ppl._waiting import Waiting, on_terminal


class Progress(tqdm):  # pyright: ignore[reportGeneralTypeIssues] - tqdm chooses its base class
    """A bar of tqdm. In files and pipes it is drawn every ten seconds, and stays at the end.

    Until the first steps are done, a terminal shows for how long their program has been compiling.

    `show` may be the label. `total` is None where it is not known; `done` steps were made before.
    """

    def __init__(
        self, show: bool | str, total: int | None, label: str, unit: str = "steps", done: int = 0
    ) -> None:
        check_kind(label, "progress", show, int | str | None, "True, False, or a label")
        is_live = on_terminal() or "ipykernel" in sys.modules
        options: dict[str, Any] = {"mininterval": 0.1 if is_live else 10.0, "leave": not is_live}
        super().__init__(
            desc=show if isinstance(show, str) else label, total=total, initial=done,
            unit=f" {unit}", disable=not show, **options,
        )  # fmt: skip
        self._moved, self._waiting = threading.Event(), Waiting(tell=False)
        self._waiting.__enter__()
        if show and is_live:
            threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        begin = time.monotonic()
        while not self._moved.wait(1.0):
            self.set_postfix_str(f"compiling, {time.monotonic() - begin:.0f} s")

    def update(self, n: float | None = 1, note: str = "") -> bool | None:
        """Add finished steps, and show a note about the last one, such as its loss."""
        self._moved.set()
        if note:
            self.set_postfix_str(note, refresh=False)
        return super().update(n)

    def close(self) -> None:
        """End the bar."""
        if hasattr(self, "_waiting"):  # not if the arguments were refused, or after the end
            self._moved.set()
            self._waiting.__exit__()
            del self._waiting
        super().close()
