"""The file of a kept fit, and what `Run.save` says in it about the fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dgp_ppl._errors import DataError
from dgp_ppl.cli._options import use_x64
from dgp_ppl.comparison import INFERENCE_HEADINGS, PREDICTION_HEADINGS
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
            raise _wrong(path, "task and classes", "those of its preprocessor")
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
        raise _wrong(path, "content", "an object")
    if not about:
        return {}
    about = {"config": {}, "row": {}} | about
    for name, wanted in _faults(about):
        raise _wrong(path, name, wanted)
    return about


def _faults(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each wrong entry, and what is wanted."""
    for name in ("source", "target"):
        if not isinstance(about.get(name), str):
            yield name, "a text"
    if about.get("task") not in _TASKS:
        yield "task", f"one of {', '.join(_TASKS)}"
    classes = about.get("classes")
    if not isinstance(classes, list) or not all(isinstance(label, str) for label in classes):
        yield "classes", "a list of texts"
    for name in ("rows", "config", "row"):
        if not isinstance(about.get(name), dict):
            yield name, "an object"
    for name in ("training", "held_out"):
        if not isinstance(about["rows"].get(name), int):
            yield f"rows.{name}", "a whole number"
    row = about["row"]
    if row and not isinstance(row.get("method"), str):
        yield "row.method", "a text"
    if row and not isinstance(row.get("steps"), int):
        yield "row.steps", "a whole number"
    if row and not isinstance(row.get("seconds"), int | float):
        yield "row.seconds", "a number"
    for name in PREDICTION_HEADINGS | INFERENCE_HEADINGS:
        if not isinstance(row.get(name), int | float | None):
            yield f"row.{name}", "a number or null"


def _wrong(path: Path, name: str, wanted: str) -> DataError:
    return DataError(
        f"{path} is damaged: the {name} of its info['comparison'] is wrong, wanted {wanted}; take "
        "another copy of it, or fit again"
    )
