"""Training rows in an order in which near rows are near, for rough functions that need the rows."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from dgp_ppl._checks import as_array, check_count
from dgp_ppl.linalg._products import as_float

_LEAF = 8  # rows of the smallest cells


class NearRows(eqx.Module):
    """The training rows that a `local` process remembers: pass the same ones to fit and predict.

    >>> import numpy as np
    >>> import dgp_ppl as dgp
    >>> near = dgp.NearRows(np.arange(20.0)[:, None], np.zeros(20), block=4)
    >>> near.x.shape, near.block
    ((20, 1), 4)

    The rows are sorted: cells of rows are halved at the median of their widest column, until they
    are small. So a block of rows that follow each other in the order is a neighbourhood.

    Args:
        x: training inputs, [N, D]. Their columns should have one scale, as a `Standardizer` gives.
        y: training targets, [N].
        block: number of rows of a block. Training takes the process as independent between blocks;
            at N it is exact, at a cost of N³.
        neighbours: number of training rows that a prediction is made from, the nearest by the
            process' kernel.

    Raises:
        ValueError: if the shapes do not fit, or a number is not finite.
    """

    x: Float[Array, "N D"]
    y: Float[Array, " N"]
    order: Int[np.ndarray, " N"]
    block: int = eqx.field(static=True)
    neighbours: int = eqx.field(static=True)

    def __init__(
        self, x: ArrayLike, y: ArrayLike, *, block: int = 64, neighbours: int = 40
    ) -> None:
        inputs, targets = (
            np.asarray(as_array("NearRows", n, a)) for n, a in {"x": x, "y": y}.items()
        )
        if inputs.ndim != 2 or targets.shape != inputs.shape[:1] or not inputs.size:
            raise ValueError(
                f"NearRows: x and y have shapes {inputs.shape} and {targets.shape}, wanted [N, D] "
                "and [N]"
            )
        if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
            raise ValueError(
                "NearRows: x or y has numbers that are not finite: leave out these rows"
            )
        check_count("NearRows", "block", block)
        check_count("NearRows", "neighbours", neighbours)
        self.order = near_order(inputs)
        self.x, self.y = as_float(inputs[self.order]), as_float(targets[self.order])
        self.block, self.neighbours = min(block, len(inputs)), min(neighbours, len(inputs))


def near_order(x: np.ndarray) -> np.ndarray:
    """Return an order of the rows of x, [N, D], in which near rows are near each other."""
    cells, done = [np.arange(len(x))], []
    while cells:
        rows = cells.pop()
        if len(rows) <= _LEAF:
            done.append(rows)
            continue
        column = x[rows, np.argmax(x[rows].std(axis=0))]
        rows, half = rows[np.argsort(column, kind="stable")], len(rows) // 2
        cells += [rows[half:], rows[:half]]
    return np.concatenate(done)
