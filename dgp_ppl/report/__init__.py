"""Figures and one HTML page of a comparison, for ``compare(out=..., report=...)``.

The figures need the extra ``dgp_ppl[plots]``, the page ``dgp_ppl[report]``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"_figures": ["draw_held_out", "write_figures"], "_page": ["write_report"]},
)
