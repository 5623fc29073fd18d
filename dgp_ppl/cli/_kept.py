"""The file of a kept fit, and what `Run.save` says in it about the fit."""

from __future__ import annotations

from typing import Any

__all__ = ["comparison_of"]

_ENTRIES = {
    "source": str, "target": str, "task": str, "classes": list, "rows": dict, "config": dict,
    "row": dict,
}  # fmt: skip


def comparison_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return what `Run.save` wrote in a fit's `info`; an empty dict for other fits.

    ``config`` and ``row`` may be empty.
    """
    about = info.get("comparison", {})
    if about == {}:
        return {}
    about = {"config": {}, "row": {}} | about if isinstance(about, dict) else {}
    for name, kind in _ENTRIES.items():
        if not isinstance(about.get(name), kind):
            raise TypeError(f"the {name} of its info['comparison'] is missing or of another type")
    return about
