"""The command ``dgp-ppl``. `dgp_ppl.cli.__main__` starts it, before what takes seconds to load."""

from __future__ import annotations

__all__: list[str] = []
