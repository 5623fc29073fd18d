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


def open_record(path: str | os.PathLike[str]) -> tuple[ArchiveReader, dict[str, Any]]:
    """Open the file of a fit; return the archive, and the result of `read_record`."""
    archive = ArchiveReader(path, KIND, FORMAT, "a fit that dgp_ppl.save wrote")
    try:
        found = {name: archive.record[name] for name in ("versions", "model", *PLAIN)}
        _check(found)
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


def _check(record: dict[str, Any]) -> None:
    """Raise `TypeError` if an entry is not what `save` writes."""
    versions, columns, data = (record[name] for name in ("versions", "columns", "data"))
    if missing := [name for name in _VERSIONS if name not in versions]:
        raise TypeError(f"its versions lack {', '.join(missing)}")
    right = {
        "versions": all(isinstance(text, str) and text.strip() for text in versions.values()),
        "model": isinstance(record["model"], str),
        "info": isinstance(record["info"], dict),
        "columns": columns is None or _is_list_of(str, columns),
        "data": data is None or all(_is_list_of(int, shape) for shape in data["shapes"]),
    }
    if wrong := [name for name, is_right in right.items() if not is_right]:
        raise TypeError(f"its {wrong[0]} is not of the right type")


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, kind) for v in value)
