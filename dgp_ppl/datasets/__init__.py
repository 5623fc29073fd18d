"""Data sets by name or from a file, their splits, and rows of data that do not fit in memory."""

from __future__ import annotations

from dgp_ppl.datasets._dataset import Dataset, repeated_rows, splits
from dgp_ppl.datasets._load import load, names
from dgp_ppl.datasets._preprocessor import Preprocessor
from dgp_ppl.datasets.rows import Rows

__all__ = ["Dataset", "Preprocessor", "Rows", "load", "names", "repeated_rows", "splits"]
