"""The normalising-flow guide, and the bijection that it takes by default."""

from __future__ import annotations

from dgp_ppl.inference.guides.flow._bijections import SplineCoupling
from dgp_ppl.inference.guides.flow._guide import Flow

__all__ = ["Flow", "SplineCoupling"]
