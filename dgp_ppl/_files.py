"""Files that are never half written, and what they say about where they come from."""

from __future__ import annotations

import contextlib
import csv
import datetime
import functools
import hashlib
import itertools
import math
import os
import platform
import struct
import subprocess
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dgp_ppl
from dgp_ppl._checks import check_kind
from dgp_ppl._errors import DataError

DAMAGE = (
    OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, RuntimeError,
    OverflowError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
"""What Python and NumPy raise for damaged archives, and for records that lack something."""

_PACKAGES = (
    "jax", "jaxlib", "numpyro", "optax", "numpy", "scikit-learn", "arviz-base", "arviz-stats",
)  # fmt: skip


def check_path(
    caller: str, path: Any, name: str = "path", wanted: str = "the path of a file"
) -> None:
    """Raise unless a file or a folder can have this path."""
    check_kind(caller, name, path, str | os.PathLike, wanted)
    if "\0" in str(path):
        raise DataError(f"{caller}: {name} {str(path)!r} has a null byte, wanted {wanted}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, new: bool = False) -> Iterator[Path]:
    """Yield a path to write a file to, and rename it at the end, so it is never half written.

    An error, `DataError` on a full disk, leaves an earlier file as it was. A symbolic link keeps
    pointing to it. A `new` file replaces none: if another program made one, both are kept.
    """
    target = Path(os.path.realpath(path))
    suffix = f".{os.getpid()}-{threading.get_ident()}.part"
    draft, shown = target.with_name(target.name + suffix), str(path).removesuffix(suffix)
    try:
        yield draft
        with draft.open("rb+") as written:  # else a power cut could leave an empty file
            os.fsync(written.fileno())
        if new:
            target.open("xb").close()
        draft.replace(target)
    except BaseException as error:
        if isinstance(error, FileExistsError) and new:
            raise DataError(
                f"{shown} exists by now: another program made it; what was to be written is in "
                f"{draft}"
            ) from error
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        # The block also reads files, and errors of these name them.
        if isinstance(error, OSError) and str(error.filename or draft).startswith(str(target)):
            raise DataError(
                f"{shown} cannot be written: {error.strerror or error}; make room there, or choose "
                "another path"
            ) from error
        raise


def write_tables(path: Path, tables: Iterable[Any], new: bool = False) -> None:
    """Write rows of `pyarrow.Table`s of the same columns to a .csv or .parquet file."""
    first = next(tables := iter(tables))
    schema = first.schema
    with replacing(path, new=new) as draft, contextlib.ExitStack() as stack:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            add = stack.enter_context(pq.ParquetWriter(draft, schema)).write_table
        else:
            stream = stack.enter_context(draft.open("w", encoding="utf-8", newline=""))
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(schema.names)

            def add(table: Any) -> None:
                writer.writerows(zip(*(c.to_pylist() for c in table.columns), strict=True))

        for table in itertools.chain([first], tables):
            for was, now in zip(schema, table.schema, strict=True):
                if was.type != now.type:
                    raise DataError(
                        f"{path} cannot be written: column {now.name!r} holds {now.type} in "
                        f"some rows and {was.type} in others; give it one type in all files"
                    )
            add(table)


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


def versions() -> dict[str, str]:
    """Return the versions of the packages, the device and the date.

    Where `dgp_ppl` runs from a checkout of Git, ``commit`` is its commit, with ``-dirty`` if files
    differ from it.
    """
    device = jax.devices()[0]
    commit = _commit()
    return {
        "dgp_ppl": dgp_ppl.__version__,
        **({"commit": commit} if commit else {}),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "device": f"{device.platform} {device.device_kind}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@functools.cache
def _commit() -> str:
    """Return the commit of the checkout that the package runs from; empty without one."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return ""
    describe = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or a folder of another user
        return ""
    return done.stdout.strip()


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
