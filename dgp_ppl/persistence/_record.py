"""What the file of a fit says about it, as values of JSON that are checked once."""

from __future__ import annotations

import os
from typing import Any

from dgp_ppl._storage import DAMAGE, ArchiveReader

__all__ = ["FORMAT", "KIND", "PLAIN", "open_record", "read_record"]

KIND, FORMAT = "fit", 1
PLAIN = ("columns", "data", "info", "preprocessing")
"""The attributes of a `KeptFit` that the record has as they are."""

_WANTED = "a fit that dgp_ppl.save wrote"
_VERSIONS = ("dgp_ppl", "jax", "device", "date")  # which every file has


def open_record(path: str | os.PathLike[str]) -> tuple[ArchiveReader, dict[str, Any]]:
    """Open the file of a fit.

    Args:
        path: the file.

    Returns:
        The archive, and the result of `read_record`.

    Raises:
        DataError: if the file is not one of `save`, is damaged or of a later version.
    """
    archive = ArchiveReader(path, KIND, FORMAT, _WANTED)
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
    if not isinstance(record["info"], dict):
        raise TypeError("its info is no object")
    if not isinstance(record["model"], str):
        raise TypeError("its model is no text")
    if not isinstance(versions, dict) or not all(map(_is_word, versions.values())):
        raise TypeError("its versions are no object of texts")
    if missing := [name for name in _VERSIONS if name not in versions]:
        raise TypeError(f"its versions lack {', '.join(missing)}")
    if columns is not None and not (isinstance(columns, list) and all(map(_is_text, columns))):
        raise TypeError("its columns are no list of texts")
    shapes = data.get("shapes") if isinstance(data, dict) else None
    if data is not None and not (isinstance(shapes, list) and all(map(_is_shape, shapes))):
        raise TypeError("its data have no list of shapes")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) for size in value)
