"""Where results come from: the versions of the packages, and the data."""

from __future__ import annotations

import datetime
import hashlib
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

__all__ = ["fingerprint", "versions"]

_PACKAGES = (
    "jax", "jaxlib", "numpyro", "optax", "numpy", "scikit-learn", "arviz-base", "arviz-stats",
)  # fmt: skip


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


def fingerprint(*arrays: Any) -> dict[str, Any]:
    """Return shapes and a hash of data, which equal values share in any container.

    Numbers count in float64, so the float32 copy of a column has another fingerprint.

    >>> fingerprint([1, 2]) == fingerprint([1.0, 2.0]), fingerprint(["a"])["shapes"]
    (True, [[1]])
    """
    digest = hashlib.sha256()
    found = [np.asarray(a) for a in arrays]
    for a in found:
        numbers = a.dtype.kind in "fiub"
        texts = "" if numbers else "\0".join(map(str, a.ravel().tolist()))
        digest.update(f"{a.shape}{'numbers' if numbers else 'texts'}".encode())
        # Adding zero turns -0.0, which equals 0.0, into it.
        digest.update((a.astype("<f8") + 0.0).tobytes() if numbers else texts.encode())
    return {"shapes": [list(a.shape) for a in found], "sha256": digest.hexdigest()}
