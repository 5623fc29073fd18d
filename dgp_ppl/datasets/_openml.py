"""Data sets of openml.org, fetched through scikit-learn and cached where it caches."""

import http.client
import re
import warnings
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._table import (
    Table,
    as_targets,
    check_names,
    check_table,
    check_values,
    named,
    one_line,
    quoted,
    shown,
)

PREFIX = "openml:"  # so that a misspelt name of another kind never asks the network
_NAME = re.compile(PREFIX + r"(?:(\d+)|([^:]*[^:\d][^:]*)(?::(\d+))?)")


def fetch(text: str, target: str | None) -> tuple[Table, str]:
    """Fetches a data set.

    Args:
        text: `openml:NAME`, `openml:NAME:VERSION` or `openml:ID`.
        target: the column to predict in place of the default target.

    Returns:
        The data set, and its address. A numeric target is regression; the labels of any other
        become the classes 0 ... C-1 in sorted order.

    Raises:
        DataError: the text is of another form, openml.org cannot be reached or does not have it,
            or it cannot be used.
    """
    where = named(text)
    match = _NAME.fullmatch(text)
    if match is None:
        raise DataError(
            f"{where}: wanted openml:NAME, openml:NAME:VERSION or openml:ID, version and id in "
            "digits; write it so"
        )
    number, name, version = match.groups()
    which: dict[str, Any] = {"data_id": int(number)} if number else {"name": name}
    if version:
        which["version"] = int(version)
    if target is not None:
        which["target_column"] = target
    try:
        bunch = _download(which)
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
    return _from_frame(where, bunch), f"openml.org, {bunch.url}"


def _download(which: dict[str, Any]) -> Any:
    """What scikit-learn makes of a data set; its warnings come only with a result."""
    import sklearn.datasets

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bunch = sklearn.datasets.fetch_openml(**which, as_frame=True, n_retries=1)
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return bunch


def _from_frame(where: str, bunch: Any) -> Table:
    """Checks and converts pandas' frame of inputs and its series of targets."""
    frame, targets = bunch.data, bunch.target
    names = tuple(map(str, frame.columns))
    if targets is None or targets.ndim != 1:
        several = "no default target" if targets is None else f"targets {quoted(targets.columns)}"
        raise DataError(
            f"{where}: it has {several}, wanted one; choose a column (target=..., --target) out of "
            f"{quoted(names if targets is None else targets.columns)}"
        )
    check_names(where, names)
    columns = []
    for position, name in enumerate(names):
        column = frame.iloc[:, position].to_numpy()
        if column.dtype.kind not in "fiu":
            raise DataError(
                f"{where}: column {shown(name)} holds no numbers, first {shown(column[0])} in row "
                "0, wanted numbers; save the data as a file with this column encoded or left out"
            )
        check_values(where, column[:, None], (name,))
        columns.append(column.astype(np.float64))
    y_name = str(targets.name)
    if targets.isna().any():
        raise DataError(
            f"{where}: the target {shown(y_name)} is missing in {int(targets.isna().sum())} rows, "
            f"first in row {int(targets.isna().to_numpy().argmax())} (from 0), wanted one in every "
            "row; save the data as a file without these rows"
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
