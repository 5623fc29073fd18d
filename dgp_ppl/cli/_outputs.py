"""Files that commands write: checks before the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dgp_ppl._errors import DataError

__all__ = ["check_output"]


def check_output(
    path: Path, overwrite: bool, suffixes: Sequence[str], inputs: Sequence[Path | str] = ()
) -> None:
    """Raise `DataError` unless a file can be written, before any work is done.

    Args:
        path: the file.
        overwrite: whether an earlier file may be replaced.
        suffixes: how its name may end.
        inputs: files that are read, which must not be replaced.
    """
    if path.suffix.lower() not in suffixes:
        raise DataError(f"{path} ends in {path.suffix!r}, wanted {' or '.join(suffixes)}")
    if path.is_dir():
        raise DataError(f"{path} is a folder, wanted a file; choose another name")
    if any(os.path.realpath(other) == os.path.realpath(path) for other in inputs):
        raise DataError(f"{path} is an input, wanted another file; choose another name")
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists; choose another name, or pass --overwrite")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise DataError(f"{path}: there is no folder {folder}; make it, or choose another name")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{path}: the folder {folder} cannot be written to; choose another name")
