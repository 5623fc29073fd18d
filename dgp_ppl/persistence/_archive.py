"""Archives: zip files of JSON and arrays.

The first member, ``dgp_ppl.json``, says what the file is. The other members are arrays in NumPy's
format, and bytes. Every member has a checksum.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl._files import replacing

KIND, FORMAT = "fit", 1
_SMALL = 2**24  # bytes
PLAIN = ("columns", "data", "info", "preprocessing")
"""The attributes of a `KeptFit` that the record has as they are."""

_HEADER, _WANTED = "dgp_ppl.json", "a fit that dgp_ppl.save wrote"
_VERSIONS = ("dgp_ppl", "jax", "device", "date")  # which every file has
_TYPES = {
    "versions": dict, "model": str, "columns": list | None, "data": dict | None, "info": dict,
}  # fmt: skip


def write_archive(
    path: str | os.PathLike[str], kind: str, version: int, record: dict[str, Any],
    members: Mapping[str, bytes],
) -> None:  # fmt: skip
    """Write an archive of this `kind` and format `version`; the same content has the same bytes."""
    record = {"kind": kind, "format": version, **record}
    text = json.dumps(record, indent=1, allow_nan=False)
    found = {_HEADER: text.encode(), **members}
    # Large files are not compressed, so that readers can refuse a small file of large content.
    method = zipfile.ZIP_DEFLATED if sum(map(len, found.values())) < _SMALL else zipfile.ZIP_STORED
    with replacing(path) as draft, zipfile.ZipFile(draft, "w") as file:
        for name, content in found.items():
            # Without a date: the default is the year 1980.
            file.writestr(zipfile.ZipInfo(name), content, method, 1)


class ArchiveReader:
    """The file of a fit: its JSON is `record`, and `member` returns the rest.

    It raises `DataError` if the file does not exist, is no fit, is damaged or of a later version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                # A zip file starts with a header of 30 bytes and the first member's name.
                content = file.read(30 + len(_HEADER))
                if content[:4] != b"PK\x03\x04" or content[30:] != _HEADER.encode():
                    raise DataError(f"{path} is not a file of dgp_ppl; wanted {_WANTED}")
                content += file.read()
        except OSError as error:
            raise DataError(
                f"{path} cannot be read: {error.strerror or error}; wanted {_WANTED}"
            ) from error
        self._room = max(16 * _SMALL, 100 * len(content))  # of bytes still to unpack
        with self.reading():
            self._file = zipfile.ZipFile(io.BytesIO(content))
            self.record = json.loads(self.member(_HEADER))
            kind, written = self.record["kind"], self.record["format"]
            writer = self.record.get("versions", {}).get("dgp_ppl", "a later release")
            newer = written > FORMAT
        if kind != KIND:
            raise DataError(f"{path} holds another kind of file, {kind!r}; wanted {_WANTED}")
        if newer:
            raise DataError(
                f"{path} has format {written}, written by dgp_ppl {writer}; this version reads "
                f"formats up to {FORMAT}: update dgp_ppl"
            )

    def about(self) -> dict[str, Any]:
        """Return the plain entries of the record, once their types are checked."""
        with self.reading():
            found = {name: self.record[name] for name in ("versions", "model", *PLAIN)}
            wrong = [name for name, kind in _TYPES.items() if not isinstance(found[name], kind)]
            if not all(isinstance(name, str) for name in found["columns"] or ()):
                wrong.append("columns")
            if wrong or any(name not in found["versions"] for name in _VERSIONS):
                raise TypeError(f"its {(*wrong, 'versions')[0]} is incomplete or of another type")
        return found

    def member(self, name: str) -> bytes:
        """Return the content of a member; raise `DataError` if it is missing, damaged or huge."""
        with self.reading():
            size = self._file.getinfo(name).file_size
            if size > (self._room if name != _HEADER else self._room // 16):
                raise MemoryError(f"{name} would take {size:,} bytes, more than a fit of this size")
            self._room -= size
            with self._file.open(name) as member:
                return member.read(size)  # without a number it could unpack more than that

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Say of the errors of a block that the file is damaged."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:  # also what constructors say to arguments that are damaged
            raise DataError(
                f"{self.path} is damaged or cut short ({one_line(error)}); take another copy of "
                "it, or save the fit again"
            ) from error


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
    return ArchiveReader(path).about()


def array_bytes(array: np.ndarray) -> bytes:
    """Return an array in NumPy's format, without pickles."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_array(content: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
