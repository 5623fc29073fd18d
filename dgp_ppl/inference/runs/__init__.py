"""Long runs: their loops of steps, the folders they resume from, and what results print as."""

from __future__ import annotations

__all__: list[str] = []
