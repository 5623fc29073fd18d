"""Predictions of a source of rows, written to a file some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._checks import bad_rows, check_count, check_inputs, check_key
from dgp_ppl._errors import DataError
from dgp_ppl._files import table_writer
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.datasets import Rows
from dgp_ppl.prediction._predict import predict
from dgp_ppl.prediction._prediction import Prediction

__all__ = ["summary_columns", "write_predictions"]

_SUFFIXES = (".parquet", ".csv")


def summary_columns(
    prediction: Prediction,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    classes: Sequence[Any] | None = None,
) -> dict[str, np.ndarray]:
    """Return a prediction as columns of a table.

    Args:
        prediction: predictions at N inputs.
        quantiles: levels of the quantiles of a number.
        classes: labels of the classes; None if y is a number.

    Returns:
        Columns [N]: ``mean``, ``sd`` and quantiles such as ``q05``, of several outputs ``mean_0``,
        ``mean_1``, ...; or the most probable ``class``, and a probability ``P(label)`` of each.
    """
    if classes is not None:
        probabilities = np.asarray(prediction.probabilities)
        found = {"class": np.array(classes)[probabilities.argmax(axis=1)]}
        for label, values in zip(classes, probabilities.T, strict=True):
            found[f"P({label})"] = values
        return found
    columns = {"mean": np.asarray(prediction.mean), "sd": np.sqrt(np.asarray(prediction.var))}
    if quantiles:
        names = [f"q{100 * level:02.6g}" for level in quantiles]
        columns |= dict(zip(names, prediction.quantile(np.array(quantiles)), strict=True))
    if columns["mean"].ndim == 1:
        return columns
    return {f"{n}_{j}": a[:, j] for n, a in columns.items() for j in range(a.shape[1])}


def write_predictions(
    path: str | os.PathLike[str],
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    params: Params | Fitted,
    rows: Rows,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    classes: Sequence[Any] | None = None,
    block_rows: int = 10_000,
    **options: Any,
) -> None:
    """Predict the rows of a source, and write the predictions to a file, some rows at a time.

    Memory does not grow with the number of rows. The file appears at the end, in full::

        write_predictions("fares.parquet", key, model, guide, fit, rows, standardizer=scale, z=z)

    Args:
        path: a .parquet or .csv file, which is replaced. Its rows are those of the source, in
            order; see `summary_columns` for its columns.
        key: random key; each block of rows uses the same passes.
        model: the model.
        guide: its fitted guide, or None.
        params: the fit's params, or its result.
        rows: a source, whose first array is x; in the units of the data if there is a
            `standardizer`. Its other arrays are not used.
        quantiles: levels of the quantiles of a number.
        classes: labels of the classes; None if y is a number.
        block_rows: rows in memory at once.
        **options: options of `predict`, and the model's keyword arguments.

    Raises:
        DataError: if x is not finite, or the file cannot be written. An earlier file is then
            unchanged.
        TypeError: if `rows` is no `Rows`.
        ValueError: if the file ends otherwise, and as `predict` does.
    """
    path = Path(os.path.expanduser(os.fspath(path)))
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"write_predictions: {path} ends in {path.suffix!r}, wanted {' or '.join(_SUFFIXES)}"
        )
    check_key("write_predictions", key)
    if not isinstance(rows, Rows):
        raise TypeError(
            f"write_predictions: rows is a {type(rows).__name__}, wanted Rows, such as "
            "dgp_ppl.Rows.from_arrays(x)"
        )
    check_count("write_predictions", "block_rows", block_rows)
    import pyarrow as pa

    start = 0
    with table_writer(path) as write:
        for x, *_ in rows.blocks(block_rows):
            numbers = start + np.arange(len(x))
            check_inputs("write_predictions", x, numbers=numbers)
            prediction = predict(key, model, guide, params, x, **options)
            found = summary_columns(prediction, quantiles, classes)
            bad = ~np.all([np.isfinite(a) for a in found.values() if a.dtype.kind == "f"], axis=0)
            if bad.any():
                raise DataError(
                    "write_predictions: predictions are not finite in "
                    f"{bad_rows(bad, numbers)}; are the inputs in the units of the fit?"
                )
            write(pa.table(found))
            start += len(x)
