"""Models and guides as programs: their sites, their data, their params."""

from __future__ import annotations

from dgp_ppl.inference.programs._handlers import freeze

__all__ = ["freeze"]
