"""`Split`: one division of a data set into training and held-out rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dgp_ppl.datasets import Dataset, RowSource

__all__ = ["Split"]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """One split of a data set.

    Attributes:
        data: the data set.
        index: number of the split, from 0.
        train: row numbers of the training rows; None for all but those of the test.
        test: row numbers of the held-out rows.
    """

    data: Dataset | RowSource
    index: int
    train: np.ndarray | None
    test: np.ndarray

    def training(self) -> tuple[Any, Any]:
        """Return the training data: x and y, or a source of rows and None."""
        if isinstance(self.data, RowSource):
            return self.data.rows.without(self.test), None
        return self.data.x[self.train], self.data.y[self.train]

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the held-out inputs and targets."""
        if isinstance(self.data, RowSource):
            x, y = self.data.rows.take(self.test)
            return x, y
        return self.data.x[self.test], self.data.y[self.test]
