"""What long runs write to the standard error stream."""

from __future__ import annotations

from dgp_ppl._terminal._progress import Progress

__all__ = ["Progress"]
