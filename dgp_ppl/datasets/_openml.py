"""Data sets of openml.org, downloaded and cached by scikit-learn."""

from __future__ import annotations

import http.client
import re
from typing import Any

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._messages import named, quoted

__all__ = ["PREFIX", "fetch_frame"]

PREFIX = "openml:"  # without it, a misspelt bundled name would go to the network
_NAME = re.compile(PREFIX + r"(?:(\d+)|([^:]*[^:\d][^:]*)(?::(\d+))?)")


def fetch_frame(text: str, target: str | None) -> tuple[Any, str, str]:
    """Fetch ``openml:NAME``, ``openml:NAME:VERSION`` or ``openml:ID``.

    Return the pandas frame of inputs and target, the name of the target, and the address.
    """
    import sklearn.datasets

    match = _NAME.fullmatch(text)
    if match is None:
        raise DataError(
            f"{named(text)}: not an OpenML name, wanted openml:NAME, openml:NAME:VERSION or "
            "openml:ID; write the version and the id in digits"
        )
    number, name, version = match.groups()
    request: dict[str, Any] = {"data_id": int(number)} if number else {"name": name}
    if version:
        request["version"] = int(version)
    if target is not None:
        request["target_column"] = target
    try:
        bunch: Any = sklearn.datasets.fetch_openml(**request, as_frame=True, n_retries=1)
    except (ValueError, KeyError, ImportError) as error:
        raise DataError(
            f"{named(text)}: OpenML's answer cannot be used ({one_line(error)}); check the name, "
            "the version and the target at openml.org"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"{named(text)}: openml.org cannot be reached ({one_line(error)}); check the network, "
            "or load a file"
        ) from error
    targets = bunch.target
    if targets is None or targets.ndim != 1:
        columns = bunch.data.columns if targets is None else targets.columns
        raise DataError(
            f"{named(text)}: there is no single default target, wanted one; choose a column "
            f"(target=..., --target) among {quoted(map(str, columns))}"
        )
    if targets.dtype.kind in "iu":  # classes are labels there, so 0 and 1 are numbers
        targets = targets.astype(float)
    frame = bunch.data.assign(**{str(targets.name): targets})
    return frame, str(targets.name), f"openml.org, {bunch.url}"
