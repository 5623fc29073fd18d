"""Tables as people have them: reading them, and turning their columns into inputs."""

from __future__ import annotations

from dgp_ppl.datasets.tables._chunks import table_chunks
from dgp_ppl.datasets.tables._preprocessor import Preprocessor, Source
from dgp_ppl.datasets.tables._read import TABLE_SUFFIXES, read_table
from dgp_ppl.datasets.tables._report import Report
from dgp_ppl.datasets.tables._table import Table

__all__ = [
    "TABLE_SUFFIXES",
    "Preprocessor",
    "Report",
    "Source",
    "Table",
    "read_table",
    "table_chunks",
]
