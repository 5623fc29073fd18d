"""A sorted data set as a source of rows, and short fits to it."""

import jax
import numpy as np
from support.fits import OPTIMIZER, SHALLOW

import dgp_ppl as dgp
from dgp_ppl.models import svgp

KEY = jax.random.key(3)
N, B = 503, 10
Y = np.sort(np.random.default_rng(0).normal(size=N)).astype(np.float32)
X = np.stack([Y + 0.3, np.cos(7 * Y)], axis=1).astype(np.float32)
Z = X[::100]


def sorted_rows(buffer_rows=50, chunk_rows=4):
    """Return rows in the order of their targets, in windows far smaller than the data."""
    rows = dgp.Rows.from_arrays(X, Y, buffer_rows=buffer_rows)
    rows._reader.chunk_rows = chunk_rows
    return rows


def streamed(steps=20, rows=None, key=KEY, **options):
    options = {"optimizer": OPTIMIZER, "progress": False, "z": Z, "batch_size": B} | options
    rows = sorted_rows() if rows is None else rows
    return dgp.fit(key, svgp, SHALLOW, rows, steps=steps, **options)
