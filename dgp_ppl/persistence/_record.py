"""What the file of a fit says about it, as values of JSON that are checked once."""

from __future__ import annotations

import os
from typing import Any

from dgp_ppl._files import DAMAGE
from dgp_ppl.persistence._archive import ArchiveReader

__all__ = ["FORMAT", "KIND", "PLAIN", "open_record", "read_record"]

KIND, FORMAT = "fit", 1
PLAIN = ("columns", "data", "info", "preprocessing")
"""The attributes of a `KeptFit` that the record has as they are."""

_VERSIONS = ("dgp_ppl", "jax", "device", "date")  # which every file has
_TYPES = {
    "versions": dict, "model": str, "columns": list | None, "data": dict | None, "info": dict,
}  # fmt: skip


def open_record(path: str | os.PathLike[str]) -> tuple[ArchiveReader, dict[str, Any]]:
    """Open the file of a fit; return the archive, and the result of `read_record`."""
    archive = ArchiveReader(path, KIND, FORMAT, "a fit that dgp_ppl.save wrote")
    try:
        found = {name: archive.record[name] for name in ("versions", "model", *PLAIN)}
        wrong = [name for name, kind in _TYPES.items() if not isinstance(found[name], kind)]
        if wrong or any(name not in found["versions"] for name in _VERSIONS):
            raise TypeError(f"its {(*wrong, 'versions')[0]} is incomplete or of another type")
    except DAMAGE as error:
        raise archive.damaged(error) from error
    return archive, found


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file of `save` says about its fit, without importing or building anything.

    Args:
        path: the file.

    Returns:
        ``versions``, the ``model``'s name, ``columns``, ``data``, ``info`` and ``preprocessing``,
        as in `KeptFit`.

    Raises:
        DataError: if the file is not one of `save`, is damaged or of a later version.
    """
    return open_record(path)[1]
