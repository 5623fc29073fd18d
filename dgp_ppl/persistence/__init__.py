"""Fits in files: to keep and load them, and to export their predictions as programs."""

from __future__ import annotations

from dgp_ppl.persistence._archive import read_record
from dgp_ppl.persistence._export import export
from dgp_ppl.persistence._kept_fit import KeptFit, load, save

__all__ = ["KeptFit", "export", "load", "read_record", "save"]
