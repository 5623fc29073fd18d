"""The files of a comparison: its folder, results.json and the ArviZ trees.

Files are written in full under another name and then renamed, so none is ever half written.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl._storage import replacing
from dgp_ppl.comparison._figures import FIGURES
from dgp_ppl.comparison._method import METHODS

__all__ = ["clear_folder", "prepare_folder", "write_json", "write_tree"]


def prepare_folder(folder: Path, overwrite: bool) -> Path:
    """Create the output folder if necessary, before anything is fitted.

    Raises:
        DataError: if the folder cannot be created or written to, or if it holds results and
            `overwrite` is False.
    """
    if (folder / "results.json").exists() and not overwrite:
        raise DataError(
            f"{folder} already holds results.json; choose another --out, or pass --overwrite"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be created: {error.strerror}; choose another --out"
        ) from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"{folder} cannot be written to; choose another --out")
    return folder


def clear_folder(folder: Path) -> None:
    """Remove the files that an earlier comparison may have written."""
    for name in (*(f"{m}.nc" for m in METHODS), *(f"{f}.png" for f in FIGURES), "report.html"):
        (folder / name).unlink(missing_ok=True)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON; numbers that are not finite become null."""
    text = json.dumps(_finite(record), indent=1, allow_nan=False)
    with replacing(path) as draft:
        draft.write_text(text + "\n")


def write_tree(path: Path, tree: Any) -> None:
    """Write an ArviZ tree as a NetCDF file."""
    with replacing(path) as draft:
        tree.to_netcdf(draft, engine="h5netcdf")


def _finite(value: Any) -> Any:
    """Replace the numbers that are not finite by None."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
