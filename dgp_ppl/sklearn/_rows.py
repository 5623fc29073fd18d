"""Predictions whose values at a row depend on that row alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dgp_ppl.comparison._fit_method import MethodFit
from dgp_ppl.prediction import pool
from dgp_ppl.prediction._row_function import row_function

__all__ = ["predict_rows"]

_FEWEST_ROWS = 64  # in a chunk
_MAX_PASSES = 100_000  # rows times passes in memory at a time


def predict_rows(
    fit: MethodFit, x: np.ndarray, num_samples: int, levels: Sequence[float] = ()
) -> dict[str, np.ndarray]:
    """Return what `row_function` computes at each row of x, [N, D], in the units of the data.

    For regression these are ``mean`` and ``var``, [N], and ``quantiles``, [N, Q], if there are
    levels; for classes ``probabilities``, [N, C]. All rows share the draws of the hidden layers'
    noise, so other rows of x, and their order, change nothing.
    """
    scale = fit.standardizer
    inputs = scale.inputs(x)  # in float64, before JAX rounds them
    members = [
        dataclasses.replace(p, standardizer=None) for p in fit.predictions(x[:1], num_samples)
    ]
    at_rows = jax.vmap(row_function(pool(members), levels))
    # Chunks have 2^k rows, so that other numbers of rows rarely compile a program.
    most = 2 ** max(0, (_MAX_PASSES // (num_samples * len(members))).bit_length() - 1)
    size = min(most, max(_FEWEST_ROWS, 2 ** (len(x) - 1).bit_length()))
    chunks = []
    for start in range(0, len(x), size):
        chunk = inputs[start : start + size]
        found = at_rows(jnp.pad(chunk, ((0, size - len(chunk)), (0, 0)), mode="edge"))
        chunks.append({n: np.asarray(a, np.float64)[: len(chunk)] for n, a in found.items()})
    values = {n: np.concatenate([c[n] for c in chunks]) for n in chunks[0]}
    if "probabilities" in values:
        return {"probabilities": values["probabilities"]}
    units = {n: scale.original(a) for n, a in values.items() if n != "var"}
    return units | {"var": values["var"] * scale.y_scale**2}
