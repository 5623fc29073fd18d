"""The state of a `Preprocessor` as JSON: what `to_state` writes and `from_state` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dgp_ppl._errors import DataError
from dgp_ppl.datasets.tables._columns import InputColumn, TargetColumn
from dgp_ppl.datasets.tables._kinds import Kind
from dgp_ppl.datasets.tables._report import Report

__all__ = ["from_state", "is_state", "to_state"]

_FORMAT, _VERSION = "dgp_ppl.Preprocessor", 1


def to_state(
    columns: tuple[InputColumn, ...], target: TargetColumn | None, report: Report
) -> dict[str, Any]:
    """Return the state: dicts, lists, texts, numbers, booleans and None."""
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "columns": [asdict(column) for column in columns],
        "target": None if target is None else asdict(target),
        "report": asdict(report),
    }
    return _plain(state)


def is_state(state: Any) -> bool:
    """Return whether a value is a state, of any version."""
    return isinstance(state, Mapping) and state.get("format") == _FORMAT


def from_state(
    state: Mapping[str, Any],
) -> tuple[tuple[InputColumn, ...], TargetColumn | None, Report]:
    """Return the columns, the target and the report of a state.

    Raises:
        DataError: if the state is damaged, or of a newer version.
    """
    if not is_state(state):
        raise DataError("Preprocessor.from_state: got no state of a Preprocessor; check the file")
    version = state.get("version")
    if not isinstance(version, int) or version < 1:
        raise DataError(f"Preprocessor.from_state: damaged, the version is {version!r}; fit again")
    if version > _VERSION:
        raise DataError(
            f"Preprocessor.from_state: the state has version {version}, wanted at most {_VERSION}; "
            "update dgp_ppl"
        )
    try:
        columns = tuple(_column(InputColumn, entry) for entry in state["columns"])
        target = state["target"]
        report = state["report"]
        return (
            columns,
            None if target is None else _column(TargetColumn, target),
            Report(
                str(report["title"]),
                tuple((str(heading), str(text)) for heading, text in report["steps"]),
                tuple(map(str, report["warnings"])),
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"Preprocessor.from_state: damaged ({type(error).__name__}: {error}); fit again"
        ) from error


def _column(made: type, entry: Mapping[str, Any]) -> Any:
    values = dict(entry) | {"kind": Kind(**entry["kind"])}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return made(**values | lists)


def _plain(value: Any) -> Any:
    """Replace tuples by lists, as JSON does."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
