"""The order in which a fit reads rows: windows of chunks, in which rows are shuffled."""

from __future__ import annotations

import dataclasses
from functools import cached_property, lru_cache

import numpy as np

__all__ = ["Order"]


@dataclasses.dataclass(frozen=True)
class Order:
    """An order of the rows of a source, a function of its seed, in which any step can be found.

    Each pass over the data cuts them into chunks, which are read one after another in an order of
    its own. The passes follow each other without an end. A window is the next rows of these, which
    are shuffled and cut into minibatches.

    The cuts are rotated by a random number of rows: the data are a circle for them. So every row
    has the same probability B/N to be in the minibatch of a step, also if the last chunk is
    shorter, and bounds of minibatches are unbiased, in whatever order the rows are kept.

    Attributes:
        seed: numbers that determine the order.
        num_rows: number of rows N.
        batch_size: rows of a minibatch B.
        window_rows: rows that are shuffled together, a multiple of B.
        chunk_rows: rows of a chunk; None reads the rows in the order in which they are kept.
    """

    seed: tuple[int, ...]
    num_rows: int
    batch_size: int
    window_rows: int
    chunk_rows: int | None

    @cached_property
    def steps(self) -> int:
        """Number of steps of a window."""
        return self.window_rows // self.batch_size

    def intervals(self, window: int) -> list[tuple[int, int]]:
        """Return the rows of a window, as intervals [start, stop) of row numbers."""
        first = window * self.window_rows
        last, found = first + self.window_rows, []
        while first < last:
            number, begin = divmod(first, self.num_rows)
            end = min(self.num_rows, begin + last - first)
            found += self._intervals(number, begin, end)
            first += end - begin
        return found

    def shuffle(self, window: int) -> np.ndarray:
        """Return the order of the rows within a window, [steps, B]."""
        rng = np.random.default_rng((*self.seed, 1, window))
        return rng.permutation(self.window_rows).reshape(self.steps, self.batch_size)

    def _intervals(self, number: int, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the rows at the positions [begin, end) of a pass."""
        if self.chunk_rows is None:
            return [(begin, end)]
        offset, chunks, starts = _chunks(self.seed, self.num_rows, self.chunk_rows, number)
        found = []
        i = int(np.searchsorted(starts, begin, side="right")) - 1
        while i < len(chunks) and starts[i] < end:
            skipped = max(0, begin - int(starts[i]))
            length = min(end, int(starts[i + 1])) - int(starts[i]) - skipped
            row = (offset + int(chunks[i]) * self.chunk_rows + skipped) % self.num_rows
            here = min(length, self.num_rows - row)
            found.append((row, row + here))
            if here < length:  # across the end of the data
                found.append((0, length - here))
            i += 1
        return found


@lru_cache(maxsize=2)
def _chunks(
    seed: tuple[int, ...], num_rows: int, chunk_rows: int, number: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the rotation of a pass, the order of its chunks, and their positions in the pass."""
    rng = np.random.default_rng((*seed, 0, number))
    offset = int(rng.integers(num_rows))
    num = -(-num_rows // chunk_rows)
    chunks = rng.permutation(num)
    lengths = np.where(chunks < num - 1, chunk_rows, num_rows - (num - 1) * chunk_rows)
    return offset, chunks, np.concatenate([[0], np.cumsum(lengths)])
