"""The file of a kept fit, and what `Run.save` says in it about the fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dgp_ppl._errors import DataError
from dgp_ppl.cli._options import use_x64
from dgp_ppl.comparison._metrics import INFERENCE_HEADINGS, PREDICTION_HEADINGS
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.persistence import KeptFit, load, read_record

__all__ = ["comparison_of", "open_fit"]

_TASKS = ("regression", "binary", "multiclass")


def open_fit(path: Path) -> KeptFit:
    """Load a kept fit, in float64 if it was fitted in float64.

    Raises:
        DataError: if the file cannot be used.
    """
    about = comparison_of(path, read_record(path)["info"])
    use_x64(bool(about and about["config"].get("x64")))
    kept = load(path)
    if about and Preprocessor.is_state(kept.preprocessing):
        columns = Preprocessor.from_state(kept.preprocessing)
        if (columns.task, list(columns.classes)) != (about["task"], about["classes"]):
            raise _wrong(path, "task and classes")
    return kept


def comparison_of(path: Path, info: dict[str, Any]) -> dict[str, Any]:
    """Return what `Run.save` wrote about a fit; an empty dict for other fits.

    Args:
        path: the fit's file, for messages.
        info: the fit's `info`.

    Returns:
        The entries, of the types that `Run.save` writes. ``config`` and ``row`` may be empty.

    Raises:
        DataError: if an entry is missing or of another type.
    """
    about = info.get("comparison", {})
    if not isinstance(about, dict):
        raise _wrong(path, "content")
    if not about:
        return {}
    about = {"config": {}, "row": {}} | about
    for name, is_right in _checks(about):
        if not is_right:
            raise _wrong(path, name)
    return about


def _checks(about: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each entry, and whether it is of the right type; dicts come first."""
    for name in ("rows", "config", "row"):
        yield name, isinstance(about.get(name), dict)
    classes, rows, row = about.get("classes"), about["rows"], about["row"]
    yield "source", isinstance(about.get("source"), str)
    yield "target", isinstance(about.get("target"), str)
    yield "task", about.get("task") in _TASKS
    yield "classes", isinstance(classes, list) and all(isinstance(c, str) for c in classes)
    yield "rows.training", isinstance(rows.get("training"), int)
    yield "rows.held_out", isinstance(rows.get("held_out"), int)
    if row:
        yield "row.method", isinstance(row.get("method"), str)
        yield "row.steps", isinstance(row.get("steps"), int)
        yield "row.seconds", isinstance(row.get("seconds"), int | float)
    for name in PREDICTION_HEADINGS | INFERENCE_HEADINGS:
        yield f"row.{name}", isinstance(row.get(name), int | float | None)


def _wrong(path: Path, name: str) -> DataError:
    return DataError(
        f"{path} is damaged: the {name} of its info['comparison'] is missing or of another type; "
        "take another copy of it, or fit again"
    )
