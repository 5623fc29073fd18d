"""Names and values in messages of `DataError`: one line with the place, the fault and the cure."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, listed

FLOAT32_MAX = float(np.finfo(np.float32).max)
WHOLE_MAX = 2**53  # float64 holds every whole number up to here
TOO_LARGE = "is infinite or beyond the range of float32 (3.4e38), which fits use"
TOO_LONG = "is a number beyond 2^53, where float64 loses digits"
OF_NEW_ROWS = "correct the cells, or leave these rows out"


def bad_cell(column: str, value: Any, place: str, what: str) -> DataError:
    """Return the error about a number of a column; `what` is wrong with it, if it is not NaN."""
    what, todo = (what, "correct the cells") if value == value else ("is missing", "fill it in")
    return DataError(f"{column}: {value} in {place} {what}; {todo}, or leave these rows out")


def constant_target(where: str, name: str, value: str) -> DataError:
    """Return the error about a target that has one value in all rows."""
    return DataError(
        f"{where}: the target {shown(name)} is {value} in every row, wanted different values; "
        "choose another target or add rows that differ"
    )


def quoted(names: Iterable[object], limit: int = 12) -> str:
    """Format names: quoted, and at most `limit` of them."""
    return listed([shown(name) for name in names], limit)


def shown(value: object, limit: int = 60) -> str:
    """Format a value: its `repr`, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def named(path: os.PathLike[str] | str) -> str:
    """Format a path or a name: in full and on one line."""
    return repr(os.fspath(path))


def suggestion(name: str, options: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the closest options in any case, or an empty string."""
    by_lower: dict[str, str] = {}
    for option in options:
        by_lower.setdefault(option.lower(), option)
        by_lower.setdefault(option.lower().rsplit("/", 1)[-1], option)
    close = difflib.get_close_matches(name.lower(), by_lower, n=5, cutoff=0.7)
    similar = list(dict.fromkeys(by_lower[key] for key in close))[:3]
    return f" (did you mean {' or '.join(map(repr, similar))}?)" if similar else ""


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Raise `DataError` unless there is such a file, with one of the suffixes."""
    wanted = " or ".join(suffixes)
    if not os.path.exists(path):
        near = os.listdir(path.parent) if os.path.isdir(path.parent) else []
        similar = suggestion(path.name, [file for file in near if file.endswith(tuple(suffixes))])
        raise DataError(f"{named(path)}: no such file{similar}; check the path")
    if not os.path.isfile(path):
        raise DataError(f"{named(path)}: not a file, wanted a {wanted} file; name one")
    if path.suffix.lower() not in suffixes:
        raise DataError(f"{named(path)}: ends in {shown(path.suffix)}, wanted {wanted}; save it")
