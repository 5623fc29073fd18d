"""The order in which a fit reads rows: windows of chunks, in which rows are shuffled."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np

from dgp_ppl.datasets.rows._seeds import generator

__all__ = ["Order"]

_TURNS = 4  # slices of each lane in a window, so that its lanes have about equal shares


@dataclasses.dataclass(frozen=True)
class Order:
    """An order of the rows of a source, a function of its seed, in which any step can be found.

    Each pass over the data cuts them into chunks, and deals these to lanes: a lane has neighbouring
    chunks, and reads them one after another in a random order. The lanes take turns, a slice of
    rows each, and end together. The passes follow each other without an end. A window is the next
    rows of these, which are shuffled and cut into minibatches. With many lanes a window has rows
    from all parts of the data, also if chunks are larger than the window.

    The cuts are rotated by a random number of rows: the data are a circle for them. So every row
    has the same probability B/N to be in the minibatch of a step, also if the last chunk is
    shorter, and bounds of minibatches are unbiased, in whatever order the rows are kept.

    Attributes:
        seed: numbers that determine the order.
        num_rows: number of rows N.
        batch_size: rows of a minibatch B.
        window_rows: rows that are shuffled together, a multiple of B.
        chunk_rows: rows of a chunk; None reads the rows in the order in which they are kept.
        lanes: number of lanes.
    """

    seed: tuple[int, ...]
    num_rows: int
    batch_size: int
    window_rows: int
    chunk_rows: int | None
    lanes: int = 1

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
            if self.chunk_rows is None:
                found.append((begin, end))
            else:
                found += self._pass(number, self.chunk_rows).intervals(begin, end)
            first += end - begin
        return found

    def shuffle(self, window: int) -> np.ndarray:
        """Return the order of the rows within a window, [steps, B]."""
        rng = generator(self.seed, "shuffle", window)
        return rng.permutation(self.window_rows).reshape(self.steps, self.batch_size)

    def _pass(self, number: int, chunk_rows: int) -> _Pass:
        turns = 1
        if self.lanes > 1:
            turns = max(1, _TURNS * self.num_rows // self.window_rows)
        return _pass(self.seed, self.num_rows, chunk_rows, self.lanes, turns, number)


@dataclasses.dataclass(frozen=True, eq=False)
class _Lane:
    """Chunks that are read one after another: where they begin, and their positions in the lane."""

    rows: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return int(self.starts[-1])

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the rows at the positions [begin, end) as a first row and a length."""
        i = int(np.searchsorted(self.starts, begin, side="right")) - 1
        while begin < end:
            length = min(end, int(self.starts[i + 1])) - begin
            yield int(self.rows[i]) + begin - int(self.starts[i]), length
            begin, i = begin + length, i + 1


@dataclasses.dataclass(frozen=True, eq=False)
class _Pass:
    """One pass: its rotation, its lanes, and how often these take turns."""

    offset: int
    num_rows: int
    lanes: tuple[_Lane, ...]
    turns: int

    def intervals(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the rows at the positions [begin, end) of the pass."""
        turn = bisect.bisect_right(range(self.turns), begin, key=self._position) - 1
        position, found = self._position(turn), []
        while position < end:
            for lane in self.lanes:
                first, last = (len(lane) * t // self.turns for t in (turn, turn + 1))
                from_here = min(last, first + max(0, begin - position))
                to_here = min(last, first + max(0, end - position))
                for row, length in lane.pieces(from_here, to_here):
                    row = (row + self.offset) % self.num_rows
                    here = min(length, self.num_rows - row)
                    found.append((row, row + here))
                    if here < length:  # across the end of the data
                        found.append((0, length - here))
                position += last - first
            turn += 1
        return found

    def _position(self, turn: int) -> int:
        """Return the position at which a turn of all lanes begins."""
        return sum(len(lane) * turn // self.turns for lane in self.lanes)


@lru_cache(maxsize=2)
def _pass(
    seed: tuple[int, ...], num_rows: int, chunk_rows: int, lanes: int, turns: int, number: int
) -> _Pass:
    rng = generator(seed, "chunks", number)
    offset = int(rng.integers(num_rows))
    num = -(-num_rows // chunk_rows)
    made = []
    for part in np.array_split(np.arange(num), min(lanes, num)):
        chunks = rng.permutation(part)
        lengths = np.where(chunks < num - 1, chunk_rows, num_rows - (num - 1) * chunk_rows)
        made.append(_Lane(chunks * chunk_rows, np.concatenate([[0], np.cumsum(lengths)])))
    return _Pass(offset, num_rows, tuple(made), turns)
