"""Where results are written: a folder that is not overwritten by chance, and JSON in one piece."""

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

__all__ = ["prepare", "versions", "write_json"]

_PACKAGES = (
    "jax", "jaxlib", "numpyro", "optax", "numpy", "scikit-learn", "arviz-base", "arviz-stats",
)  # fmt: skip


def prepare(folder: Path, overwrite: bool) -> Path:
    """The output folder, made if need be, before anything is fitted.

    Raises:
        DataError: if it holds results already and may not be overwritten, or cannot be made.
    """
    if (folder / "results.json").exists() and not overwrite:
        raise DataError(
            f"{folder} already holds results.json; choose another --out, or pass --overwrite"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be made: {error.strerror}; choose another --out"
        ) from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"{folder} cannot be written to; choose another --out")
    return folder


def versions() -> dict[str, str]:
    """What a result was made with, and when."""
    device = jax.devices()[0]
    return {
        "dgp_ppl": version("dgp_ppl"),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "device": f"{device.platform} {device.device_kind}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all; what is not a finite number is null."""
    draft = path.with_suffix(".json.part")
    draft.write_text(json.dumps(_plain(record), indent=1, allow_nan=False) + "\n")
    draft.replace(path)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
