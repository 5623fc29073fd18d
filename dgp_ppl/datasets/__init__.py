"""Data sets by name or from a file, their splits, and rows of data that do not fit in memory."""

from __future__ import annotations

from dgp_ppl.datasets._arrow import ArrowFrame
from dgp_ppl.datasets._dataset import Dataset, DatasetInfo, repeated_rows, splits
from dgp_ppl.datasets._load import load, names
from dgp_ppl.datasets._npz import DEFAULT_SPLITS
from dgp_ppl.datasets._source import RowSource, TableSource, open_source
from dgp_ppl.datasets.rows import Rows
from dgp_ppl.datasets.tables import Preprocessor, Report, Table, read_table, table_chunks

__all__ = [
    "DEFAULT_SPLITS",
    "ArrowFrame",
    "Dataset",
    "DatasetInfo",
    "Preprocessor",
    "Report",
    "RowSource",
    "Rows",
    "Table",
    "TableSource",
    "load",
    "names",
    "open_source",
    "read_table",
    "repeated_rows",
    "splits",
    "table_chunks",
]
