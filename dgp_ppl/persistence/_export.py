"""Predictions as a program of JAX, which runs without this library."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import jax
import jax.export
import numpy as np
from jaxtyping import Array

from dgp_ppl._checks import as_array, check_kind
from dgp_ppl._errors import one_line
from dgp_ppl._files import check_path, versions
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.linalg._precision import precision_of
from dgp_ppl.persistence._archive import write_archive
from dgp_ppl.prediction import Prediction
from dgp_ppl.prediction._arrays import BLOCK
from dgp_ppl.prediction._function import row_function
from dgp_ppl.prediction._pool import PooledPrediction

_FORMAT = 2
_MAX_ROUNDING = 1e-4  # of the inputs, in their standard deviations
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export(
    path: str | os.PathLike[str],
    prediction: Prediction,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    platforms: Sequence[str] = ("cpu", "cuda"),
    columns: Sequence[str] | Preprocessor | None = None,
) -> None:
    """Export a prediction as a program for other inputs, which runs with JAX alone.

    The program maps x [B, D], a block of B = 32 rows, to a dict of arrays in the units of the data:
    ``mean`` and ``var`` [B], ``quantiles`` [B, Q], and for classes ``probabilities`` [B, C].
    `jax.export` serialises it. The params and the random key are constants of the program. The
    values of a row depend on that row only: they equal the same prediction's at x[i : i + 1]::

        dgp.export("price.jaxprogram", dgp.predict(key, model, guide, fit.params, x[:1], z=z))

    To run it, with `jax` and `flatbuffers` installed::

        import json, zipfile, jax.export, numpy as np
        with zipfile.ZipFile("price.jaxprogram") as file:
            header = json.loads(file.read("dgp_ppl.json"))
            program = jax.export.deserialize(bytearray(file.read("program")))
        shape = header["inputs"][0]["shape"]
        blocks = [np.resize(x[i : i + shape[0]], shape) for i in range(0, len(x), shape[0])]
        found = [program.call(block.astype("float32"))["mean"] for block in blocks]
        mean = np.concatenate(found)[: len(x)]

    Args:
        path: the file.
        prediction: made by `predict`, `KeptFit.predict` or `pool`, at any inputs. The program
            has its key, passes and standardizer.
        quantiles: levels in (0, 1); () for none.
        platforms: what the program can run on: "cpu", "cuda", "rocm" or "tpu".
        columns: names of the inputs' columns, for the file's header; or the `Preprocessor` that
            made the inputs, whose `plan` says how a raw row becomes inputs.

    Raises:
        DataError: if the file cannot be written.
        ImportError: if `flatbuffers`, which JAX's serialisation needs, is not installed.
        TypeError: if `prediction` is not a `Prediction`.
        ValueError: if a level, a platform or the number of columns is wrong; if the likelihood has
            no moments or distribution function; if float32 cannot resolve the inputs in their
            units; if the model has operations that a platform lacks.
    """
    check_path("export", path)
    check_kind("export", "prediction", prediction, Prediction, "a Prediction, as predict makes")
    if find_spec("flatbuffers") is None:
        raise ImportError("export: wanted flatbuffers; python -m pip install 'dgp_ppl[export]'")
    dim, dtype = prediction.x.shape[1], prediction.x.dtype
    plan = columns.plan if isinstance(columns, Preprocessor) else None
    columns = columns.names if isinstance(columns, Preprocessor) else columns
    if columns is not None and (np.ndim(columns) != 1 or len(columns) != dim):
        raise ValueError(f"export: columns is {one_line(columns)}, wanted a list of {dim} names")
    check_kind("export", "platforms", platforms, Sequence, f"some of {_PLATFORMS}")
    if not platforms or not set(platforms) <= set(_PLATFORMS):
        raise ValueError(f"export: platforms is {list(platforms)}, wanted some of {_PLATFORMS}")
    _check_resolution(prediction)
    levels = np.asarray(as_array("export", "quantiles", quantiles), np.float64)
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"export: quantiles is {quantiles}, wanted levels strictly in (0, 1)")
    arrays, owns = jax.tree.leaves(prediction.data), jax.tree.leaves(prediction.by_row)
    by_row = [a for a, own in zip(arrays, owns, strict=True) if own]
    inputs = [jax.ShapeDtypeStruct((BLOCK, dim), dtype)]
    inputs += [jax.ShapeDtypeStruct((BLOCK, *a.shape[1:]), a.dtype) for a in by_row]
    program = _at_rows(prediction, levels.tolist())
    row = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in inputs]
    try:
        jax.eval_shape(row_function(prediction, levels.tolist()), *row)
    except ValueError as error:
        raise ValueError(f"export: {error}") from error
    try:
        exported = jax.export.export(jax.jit(program), platforms=list(platforms))(*inputs)
        content = bytes(exported.serialize())
    except (NotImplementedError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"export: JAX cannot export this model for {', '.join(platforms)} ({reason}); try "
            "platforms=('cpu',), operations of jax.numpy in the model, and jax_enable_x64 if the "
            "params are float64"
        ) from error
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    record = {
        "versions": versions(),
        "inputs": [{"shape": list(a.shape), "dtype": str(a.dtype)} for a in inputs],
        "outputs": {n: list(a.shape) for n, a in outputs.items()},
        "columns": None if columns is None else [str(c) for c in columns],
        "plan": plan,
        "quantiles": levels.tolist() if "quantiles" in outputs else [],
        "passes": prediction.num_samples,
        "platforms": list(platforms),
    }
    write_archive(path, "export", _FORMAT, record, {"program": content})


def _at_rows(prediction: Prediction, levels: list[float]) -> Callable[..., dict[str, Array]]:
    def shielded(member: Prediction) -> Prediction:
        # XLA would spend seconds on folding the products of constant matrices at the first call.
        with precision_of(member.params):
            arrays = jax.lax.optimization_barrier((member.params, member.draws, member.data))
        params, draws, data = arrays
        return dataclasses.replace(member, params=params, draws=draws, data=data)

    def program(*rows: Array) -> dict[str, Array]:
        if isinstance(prediction, PooledPrediction):
            p = dataclasses.replace(prediction, members=tuple(map(shielded, prediction.members)))
        else:
            p = shielded(prediction)
        return jax.vmap(row_function(p, levels))(*rows)

    return program


def _check_resolution(prediction: Prediction) -> None:
    """Raise if the dtype of x cannot resolve inputs, or y, in the units of the data."""
    scale = prediction.standardizer
    if scale is None:
        return
    eps = np.finfo(prediction.x.dtype).eps
    if scale.scales_targets and np.max(eps * np.abs(scale.y_loc) / scale.y_scale) > _MAX_ROUNDING:
        raise ValueError(
            f"export: y has mean {scale.y_loc} and standard deviation {scale.y_scale}, which "
            f"{prediction.x.dtype.name} would blur; subtract a constant from y before the fit, or "
            "export under jax_enable_x64"
        )
    rounding = eps * np.abs(scale.x_loc) / scale.x_scale
    worst = int(np.argmax(rounding))
    if rounding[worst] > _MAX_ROUNDING:
        raise ValueError(
            f"export: column {worst} of x has mean {scale.x_loc[worst]:g} and standard deviation "
            f"{scale.x_scale[worst]:g}, which {prediction.x.dtype.name} inputs would blur; "
            "subtract a constant from the column before the fit, or export under jax_enable_x64"
        )
