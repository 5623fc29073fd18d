"""Archives: zip files of JSON and arrays.

The first member, ``dgp_ppl.json``, says what the file is. The other members are arrays in NumPy's
format, and bytes. Every member has a checksum.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl._files import DAMAGE, replacing

__all__ = ["ArchiveReader", "array_bytes", "read_array", "write_archive"]

_HEADER = "dgp_ppl.json"


def write_archive(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    record: dict[str, Any],
    members: Mapping[str, bytes],
) -> None:
    """Write an archive, or leave an earlier file as it was. The same content has the same bytes.

    `kind` is what the file holds, such as "fit", and `version` the number of the kind's format.
    """
    record = {"kind": kind, "format": version, **record}
    text = json.dumps(record, indent=1, allow_nan=False)
    try:
        with replacing(path) as draft, zipfile.ZipFile(draft, "w") as file:
            for name, content in {_HEADER: text.encode(), **members}.items():
                # Without a date: the default is the year 1980.
                file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; choose another path"
        ) from error


class ArchiveReader:
    """The content of an archive: its JSON is `record`, and `member` returns the rest.

    It raises `DataError` if the file does not exist, is not of this kind, is damaged or newer than
    the `version`. `wanted` says in words which file the caller wants.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: str, version: int, wanted: str
    ) -> None:  # fmt: skip
        self.path = Path(path)
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise DataError(
                f"{path} cannot be read: {error.strerror or error}; wanted {wanted}"
            ) from error
        # A zip file starts with a header of 30 bytes and the first member's name.
        if content[:4] != b"PK\x03\x04" or content[30 : 30 + len(_HEADER)] != _HEADER.encode():
            raise DataError(f"{path} is not a file of dgp_ppl; wanted {wanted}")
        try:
            self._file = zipfile.ZipFile(io.BytesIO(content))
            self.record = json.loads(self.member(_HEADER))
            found, written = self.record["kind"], self.record["format"]
            writer = self.record.get("versions", {}).get("dgp_ppl", "a later release")
            newer = written > version
        except DAMAGE as error:
            raise self.damaged(error) from error
        if found != kind:
            raise DataError(f"{path} holds another kind of file, {found!r}; wanted {wanted}")
        if newer:
            raise DataError(
                f"{path} has format {written}, written by dgp_ppl {writer}; this version reads "
                f"formats up to {version}: update dgp_ppl"
            )

    def member(self, name: str) -> bytes:
        """Return the content of a member; raise `DataError` if it is missing or damaged."""
        try:
            return self._file.read(name)
        except DAMAGE as error:
            raise self.damaged(error) from error

    def damaged(self, error: object) -> DataError:
        """Return the error that says that the file is damaged."""
        reason = " ".join(f"{error or type(error).__name__}".split())
        return DataError(
            f"{self.path} is damaged or cut short ({reason}); take another copy of it, or save the "
            "fit again"
        )


def array_bytes(array: np.ndarray) -> bytes:
    """Return an array in NumPy's format, without pickles."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_array(content: bytes) -> np.ndarray:
    """Return the array of `array_bytes`."""
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
