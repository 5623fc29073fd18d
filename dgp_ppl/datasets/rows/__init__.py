"""Rows of data that do not fit in memory, read ahead in blocks of minibatches."""

from __future__ import annotations

from dgp_ppl.datasets.rows._blocks import Block, Blocks
from dgp_ppl.datasets.rows._parquet import parquet_columns
from dgp_ppl.datasets.rows._rows import Rows
from dgp_ppl.datasets.rows._seeds import generator, seed_of

__all__ = ["Block", "Blocks", "Rows", "generator", "parquet_columns", "seed_of"]
