"""The files of a comparison: its folder, results.json and the ArviZ trees.

Files are written in full under another name and then renamed, so none is ever half written.
"""

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.comparison._figures import FIGURES
from dgp_ppl.comparison._method import METHODS

__all__ = ["clear_folder", "prepare_folder", "versions", "write_json", "write_tree"]

_PACKAGES = (
    "jax", "jaxlib", "numpyro", "optax", "numpy", "scikit-learn", "arviz-base", "arviz-stats",
)  # fmt: skip


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


def versions() -> dict[str, str]:
    """Return the versions of the packages, the device and the date."""
    device = jax.devices()[0]
    return {
        "dgp_ppl": version("dgp_ppl"),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "device": f"{device.platform} {device.device_kind}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON; numbers that are not finite become null."""
    draft = path.with_suffix(".json.part")
    draft.write_text(json.dumps(_finite(record), indent=1, allow_nan=False) + "\n")
    draft.replace(path)


def write_tree(path: Path, tree: Any) -> None:
    """Write an ArviZ tree as a NetCDF file."""
    draft = path.with_suffix(".nc.part")
    tree.to_netcdf(draft, engine="h5netcdf")
    draft.replace(path)


def _finite(value: Any) -> Any:
    """Replace the numbers that are not finite by None."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
