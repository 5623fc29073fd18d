"""Rows of data that do not fit in memory, read ahead in blocks of minibatches."""

from __future__ import annotations

from dgp_ppl.datasets.rows._rows import Rows

__all__ = ["Rows"]
