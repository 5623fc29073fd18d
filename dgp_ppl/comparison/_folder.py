"""The files of a comparison: its folder, results.json and the ArviZ trees.

Files are written in full under another name and then renamed, so none is ever half written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dgp_ppl._errors import DataError, printable
from dgp_ppl._files import fingerprint, finite, replacing
from dgp_ppl.comparison._method import METHODS
from dgp_ppl.datasets import Dataset
from dgp_ppl.datasets._source import RowSource

LAST_FIGURES = ("predictions", "reliability")
"""Figures of a report, one of which is written last."""

_FIGURES = (*LAST_FIGURES, "training", "pit", "function")
_HASHED_ROWS = 1000


def prepare_folder(folder: Path, overwrite: bool, resume: bool = False) -> Path:
    """Create the output folder if necessary, before anything is fitted."""
    if (folder / "results.json").exists() and not (overwrite or resume):
        raise DataError(
            f"{folder} already holds results.json; choose another --out, or pass --resume to go on "
            "with it or --overwrite to replace it"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{printable(folder)} cannot be created: {why}; choose another --out"
        ) from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"{folder} cannot be written to; choose another --out")
    return folder


def finished_rows(folder: Path, record: dict[str, Any], refit: bool) -> list[dict[str, Any]]:
    """Return rows of an interrupted comparison to keep; to `refit`, none of the first split.

    A fit of the first split without its tree was killed between its two files, and is made again.
    """
    path = folder / "results.json"
    if not path.exists():
        return []
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        before = [dict(kept[name]) for name in ("config", "data")]
        splits = kept["config"]["splits"]
        first = splits[0] if isinstance(splits, list) else 0
        rows = [row for row in kept["splits"] if not refit or row["split"] != first]
        places = [(row["split"], row["method"], "error" in row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read ({error!r}); choose another --out, or pass --overwrite"
        ) from error
    now = json.loads(json.dumps(finite([record["config"], record["data"]])))
    differing = [
        name
        for old, new in zip(before, now, strict=True)
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise DataError(
            f"{folder} holds another comparison: its {', '.join(differing)} differ; call with the "
            "same options and data, choose another --out, or pass --overwrite"
        )
    return [
        row for row, (split, method, failed) in zip(rows, places, strict=True)
        if split != first or failed or method not in METHODS or (folder / f"{method}.nc").exists()
    ]  # fmt: skip


def clear_folder(folder: Path) -> None:
    """Remove the files that an earlier comparison and its report may have written."""
    for name in (*(f"{m}.nc" for m in METHODS), *(f"{f}.png" for f in _FIGURES), "report.html"):
        (folder / name).unlink(missing_ok=True)


def write_json(path: Path, record: dict[str, Any], *, new: bool = False) -> None:
    """Write a record as JSON; numbers that are not finite become null. See `replacing`."""
    text = json.dumps(finite(record), indent=1, allow_nan=False)
    with replacing(path, new=new) as draft:
        draft.write_text(text + "\n")


def describe(data: Dataset | RowSource) -> dict[str, Any]:
    columns = data.preprocessor
    table = {} if columns is None else {
        "inputs": list(columns.names), "classes": list(columns.classes),
        "preparation": str(columns.report).splitlines(),
    }  # fmt: skip
    # A source is known by its first rows, as reading all takes a pass.
    is_source = isinstance(data, RowSource)
    arrays = next(iter(data.rows.blocks(_HASHED_ROWS))) if is_source else (data.x, data.y)
    return {
        "name": data.name, "rows": len(data), "columns": len(data.x_names), "task": data.task,
        "target": data.y_name, "source": data.source,
        "own_splits": None if data.test_index is None else len(data.test_index),
        "sha256": fingerprint(*arrays)["sha256"],
    } | table  # fmt: skip
