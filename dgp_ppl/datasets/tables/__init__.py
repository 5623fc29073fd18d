"""Tables as people have them: reading them, and turning their columns into inputs."""

from __future__ import annotations

from dgp_ppl.datasets.tables._preprocessor import Preprocessor
from dgp_ppl.datasets.tables._read import read_table, table_chunks
from dgp_ppl.datasets.tables._report import Report
from dgp_ppl.datasets.tables._table import Table

__all__ = ["Preprocessor", "Report", "Table", "read_table", "table_chunks"]
