"""The order in which a fit reads rows: windows of rows from all over the data, then shuffled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from jax import random

from dgp_ppl._checks import check_key
from dgp_ppl._typing import PRNGKey

_USES = ("pass", "shuffle", "sample", "hold out", "minibatches")  # of a seed


def seed_of(key: PRNGKey) -> tuple[int, ...]:
    """Return the numbers of a random key, as a seed of NumPy's generators."""
    check_key("seed_of", key)
    data = key if not hasattr(key, "dtype") or key.dtype == np.uint32 else random.key_data(key)
    return tuple(int(word) for word in np.asarray(data).ravel())


def generator(seed: tuple[int, ...], use: str, *numbers: int) -> np.random.Generator:
    """Return the generator of a use of a seed, such as the shuffle of window `numbers`."""
    # Zeros at the end of a seed do not count for NumPy, so the use cannot stand there.
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(_USES.index(use), *numbers))
    )


@dataclasses.dataclass(frozen=True)
class Order:
    """An order of the rows of a source, a function of its seed, in which any step can be found.

    Each pass takes the data for a circle, rotates it by a random number of rows, and cuts it into
    arcs of neighbouring rows. The arcs are read side by side, each from a random row of its own on
    and around, and they end together. Passes follow each other without an end. A window is the next
    rows of the passes; it is shuffled and cut into minibatches. So a window has equal shares of all
    parts of the data.

    A place in the order has the same arc and step in every pass, and the rotation puts each row
    there with the same probability. So every row has the probability B/N to be in the minibatch of
    a step, and bounds of minibatches are unbiased, in whatever order the rows are kept.
    """

    seed: tuple[int, ...]
    num_rows: int  # N
    batch_size: int  # B
    window_rows: int  # rows that are shuffled together, a multiple of B
    arcs: int = 1  # number of arcs

    @cached_property
    def steps(self) -> int:
        return self.window_rows // self.batch_size

    def intervals(self, window: int) -> list[tuple[int, int]]:
        """Return the rows of a window, as intervals [start, stop) of row numbers."""
        first = window * self.window_rows
        last, found = first + self.window_rows, []
        while first < last:
            number, begin = divmod(first, self.num_rows)
            end = min(self.num_rows, begin + last - first)
            found += self._of_pass(number, begin, end)
            first += end - begin
        return found

    def shuffle(self, window: int) -> np.ndarray:
        """Return the order of the rows within a window, [steps, B]."""
        rng = generator(self.seed, "shuffle", window)
        return rng.permutation(self.window_rows).reshape(self.steps, self.batch_size)

    def _of_pass(self, number: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the rows at the positions [begin, end) of a pass.

        Position t is step t // arcs of arc t % arcs. The first arcs are one row longer than the
        last ones if the arcs do not divide N, and have a last step of their own.
        """
        rng = generator(self.seed, "pass", number)
        rotation, arcs = int(rng.integers(self.num_rows)), min(self.arcs, self.num_rows)
        lengths = self.num_rows // arcs + (np.arange(arcs) < self.num_rows % arcs)
        firsts = np.cumsum(lengths) - lengths + rotation
        starts = rng.integers(lengths)
        for arc, (first, start, length) in enumerate(zip(firsts, starts, lengths, strict=True)):
            steps = [max(0, -((arc - t) // arcs)) for t in (begin, end)]  # rounded up
            for a, b in _on_circle(int(start) + steps[0], int(start) + steps[1], int(length)):
                yield from _on_circle(int(first) + a, int(first) + b, self.num_rows)


def _on_circle(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield an interval of at most `size` places on a circle as one or two intervals."""
    start, stop = start % size, start % size + stop - start
    if start < min(stop, size):
        yield start, min(stop, size)
    if stop > size:
        yield 0, stop - size
