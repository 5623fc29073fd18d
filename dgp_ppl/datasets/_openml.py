"""Data sets of openml.org, downloaded and cached by scikit-learn."""

from __future__ import annotations

import http.client
import re
import warnings
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError, one_line
from dgp_ppl.datasets._table import (
    Table,
    as_targets,
    check_names,
    check_table,
    check_values,
    named,
    quoted,
    shown,
)

__all__ = ["PREFIX", "fetch", "fetch_frame"]

PREFIX = "openml:"  # without it, a misspelt bundled name would go to the network
_NAME = re.compile(PREFIX + r"(?:(\d+)|([^:]*[^:\d][^:]*)(?::(\d+))?)")


def fetch(text: str, target: str | None) -> tuple[Table, str]:
    """Fetch a data set of numbers.

    Args:
        text: ``openml:NAME``, ``openml:NAME:VERSION`` or ``openml:ID``.
        target: the column to predict; None for the default target.

    Returns:
        The data set, and its address. The task of a numeric target is regression. Other targets
        are labels, which become the classes 0 ... C-1 in sorted order.

    Raises:
        DataError: if the text has another form, openml.org cannot be reached or has no such data
            set, or the data cannot be used.
    """
    bunch = _fetch_bunch(text, target)
    return _from_frame(named(text), bunch), f"openml.org, {bunch.url}"


def fetch_frame(text: str, target: str | None) -> tuple[Any, str, str]:
    """Fetch a data set as it is.

    Returns:
        The pandas frame of inputs and target, the name of the target, and the address.

    Raises:
        DataError: as for `fetch`.
    """
    bunch = _fetch_bunch(text, target)
    targets = _one_target(named(text), bunch)
    if targets.dtype.kind in "iu":  # classes are labels there, so 0 and 1 are numbers
        targets = targets.astype(float)
    frame = bunch.data.assign(**{str(targets.name): targets})
    return frame, str(targets.name), f"openml.org, {bunch.url}"


def _fetch_bunch(text: str, target: str | None) -> Any:
    """Download a data set by its text; see `fetch`."""
    where = named(text)
    match = _NAME.fullmatch(text)
    if match is None:
        raise DataError(
            f"{where}: not an OpenML name, wanted openml:NAME, openml:NAME:VERSION or openml:ID; "
            "write the version and the id in digits"
        )
    number, name, version = match.groups()
    request: dict[str, Any] = {"data_id": int(number)} if number else {"name": name}
    if version:
        request["version"] = int(version)
    if target is not None:
        request["target_column"] = target
    try:
        return _download(request)
    except (ValueError, KeyError, ImportError) as error:
        raise DataError(
            f"{where}: OpenML's answer cannot be used ({one_line(error)}); check the name, the "
            "version and the target at openml.org"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"{where}: openml.org cannot be reached ({one_line(error)}); check the network, or "
            "load a file"
        ) from error


def _download(request: dict[str, Any]) -> Any:
    """Download a data set; its warnings are passed on only if the download succeeds."""
    import sklearn.datasets

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bunch = sklearn.datasets.fetch_openml(**request, as_frame=True, n_retries=1)
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return bunch


def _one_target(where: str, bunch: Any) -> Any:
    """Return the series of targets, or raise `DataError` unless there is one."""
    targets = bunch.target
    if targets is None or targets.ndim != 1:
        got = "no default target" if targets is None else f"targets {quoted(targets.columns)}"
        columns = map(str, bunch.data.columns) if targets is None else targets.columns
        raise DataError(
            f"{where}: {got}, wanted one target; choose a column (target=..., --target) among "
            f"{quoted(columns)}"
        )
    return targets


def _from_frame(where: str, bunch: Any) -> Table:
    """Check and convert the pandas frame of inputs and the series of targets."""
    frame, targets = bunch.data, _one_target(where, bunch)
    names = tuple(map(str, frame.columns))
    check_names(where, names)
    columns = []
    for position, name in enumerate(names):
        column = frame.iloc[:, position].to_numpy()
        if column.dtype.kind not in "fiu":
            raise DataError(
                f"{where}: column {shown(name)} does not hold numbers, first {shown(column[0])} in "
                "row 0, wanted numbers; save the data as a file with this column encoded or removed"
            )
        check_values(where, column[:, None], (name,))
        columns.append(column.astype(np.float64))
    y_name = str(targets.name)
    if targets.isna().any():
        raise DataError(
            f"{where}: the target {shown(y_name)} is missing in {int(targets.isna().sum())} rows, "
            f"first in row {int(targets.isna().to_numpy().argmax())} (from 0), wanted a target in "
            "every row; save the data as a file without these rows"
        )
    y = targets.to_numpy()
    if y.dtype.kind in "fiu":
        task = "regression"
        check_values(where, y[:, None], (y_name,))
    else:
        classes, y = np.unique(y.astype(str), return_inverse=True)
        task = "binary" if len(classes) == 2 else "multiclass"
    x = np.column_stack(columns) if columns else np.empty((len(y), 0))
    return check_table(where, Table(x, as_targets(y, task), names, y_name, task))
