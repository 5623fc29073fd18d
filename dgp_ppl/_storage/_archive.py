"""Files that are replaced at once, and archives of JSON and arrays in one file.

An archive is a zip file. Its first member, ``dgp_ppl.json``, says what the file is. The others are
arrays in NumPy's format, and bytes. Every member has a checksum.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError

__all__ = [
    "DAMAGE",
    "ArchiveReader",
    "array_bytes",
    "finite",
    "read_array",
    "replacing",
    "write_archive",
]

DAMAGE = (
    OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, RuntimeError,
    OverflowError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
"""What Python and NumPy raise for damaged archives, and for records that lack something."""

_HEADER = "dgp_ppl.json"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file under another name, and rename it at the end, so it is never half written.

    If the block raises, an earlier file stays as it was.

    Args:
        path: the file. A symbolic link keeps pointing to it.

    Yields:
        The path to write to, in the same folder.
    """
    target = Path(os.path.realpath(path))
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        yield draft
        with draft.open("rb+") as written:  # else a power cut could leave an empty file
            os.fsync(written.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_archive(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    record: dict[str, Any],
    members: Mapping[str, bytes],
) -> None:
    """Write an archive at once. The same content gives the same bytes.

    Args:
        path: the file.
        kind: what the file holds, such as "fit".
        version: number of the kind's format.
        record: values of JSON.
        members: further members by name.

    Raises:
        DataError: if the file cannot be written. An earlier file is then unchanged.
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
    """The content of an archive.

    Args:
        path: the file.
        kind: what the file must hold.
        version: the newest format that can be read.
        wanted: the file that the caller wants, in words.

    Attributes:
        path: the file.
        record: its JSON.

    Raises:
        DataError: if the file does not exist, is not of this kind, is damaged or newer.
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
        """Return the content of a member.

        Raises:
            DataError: if it is missing, or does not fit its checksum.
        """
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


def finite(value: Any) -> Any:
    """Return a value of JSON where None replaces the numbers that are not finite.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def array_bytes(array: np.ndarray) -> bytes:
    """Return an array in NumPy's format, without pickles.

    Raises:
        ValueError: if the array holds Python objects.
    """
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_array(content: bytes) -> np.ndarray:
    """Return the array of `array_bytes`."""
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
