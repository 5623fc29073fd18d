"""Files that are never half written: archives of arrays and JSON, and the values that they hold."""

from __future__ import annotations

from dgp_ppl._storage._archive import (
    DAMAGE,
    ArchiveReader,
    array_bytes,
    finite,
    read_array,
    replacing,
    write_archive,
)  # fmt: skip
from dgp_ppl._storage._names import UnnamedError, import_name, import_path
from dgp_ppl._storage._provenance import fingerprint, versions
from dgp_ppl._storage._tables import table_writer
from dgp_ppl._storage._values import Decoder, Encoder

__all__ = [
    "DAMAGE",
    "ArchiveReader",
    "Decoder",
    "Encoder",
    "UnnamedError",
    "array_bytes",
    "fingerprint",
    "finite",
    "import_name",
    "import_path",
    "read_array",
    "replacing",
    "table_writer",
    "versions",
    "write_archive",
]
