"""Row groups of Parquet files, decoded from their beginning, some rows at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Piece", "RowGroups"]

Arrays = tuple[np.ndarray, ...]


class Piece(NamedTuple):
    """Rows of a row group, and where to put them.

    Attributes:
        group: number of the row group.
        start: the first row within it.
        stop: the row after the last one.
        position: of the first row among the rows that are read.
    """

    group: int
    start: int
    stop: int
    position: int


class RowGroups:
    """Reads pieces of row groups, and keeps the places at which it stopped.

    Parquet cannot be read from the middle of a row group. So each reading goes on from one of the
    places where an earlier one ended, if there is one, and else from the beginning of the row
    group. Memory holds a batch for each place, however large the row groups are.

    Args:
        sizes: number of rows of each row group.
        batches: starts to decode a row group: yields the number of rows of each batch, and a
            function that makes its arrays.
        most: the most places that are kept.
        reach: the most rows between a place and a piece that are skipped; beyond, the place is left
            to who reads there.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        batches: Callable[[int], Iterator[tuple[int, Callable[[], Arrays]]]],
        most: int,
        reach: int,
    ) -> None:
        self.sizes, self.batches, self.most, self.reach = sizes, batches, most, reach
        self._places: list[_Place] = []  # those used last are at the end
        self._lock = threading.Lock()

    def read(self, pieces: Sequence[Piece]) -> Arrays:
        """Read pieces in the order of the rows, and return them at their positions."""
        with self._lock:
            return self._read(pieces, self._places, self.reach)

    def read_once(self, pieces: Sequence[Piece]) -> Arrays:
        """Read pieces, which may be far from each other, and keep no place."""
        return self._read(pieces, [], max(self.sizes))

    def _read(self, pieces: Sequence[Piece], places: list[_Place], reach: int) -> Arrays:
        rows = sum(p.stop - p.start for p in pieces)
        found: Arrays = ()
        for piece in sorted(pieces):
            place = _taken(places, piece, reach)
            if place is None:
                place = _Place(piece.group, self.batches(piece.group))
            position = piece.position
            for arrays in place.read(piece.start, piece.stop):
                if not found:
                    found = tuple(np.empty((rows, *a.shape[1:]), a.dtype) for a in arrays)
                end = position + len(arrays[0])
                for out, array in zip(found, arrays, strict=True):
                    out[position:end] = array
                position = end
            if place.row < self.sizes[piece.group]:
                places.append(place)
                del places[: -self.most]
        return found


class _Place:
    """Where the reading of a row group stopped."""

    def __init__(self, group: int, batches: Iterator[tuple[int, Callable[[], Arrays]]]) -> None:
        self.group, self.row = group, 0
        self._batches, self._first, self._end = batches, 0, 0
        self._arrays: Arrays | Callable[[], Arrays] = ()

    def read(self, start: int, stop: int) -> Iterator[Arrays]:
        """Yield the rows from `start`, which lies not before the place, in parts."""
        self.row = start
        while self.row < stop:
            while self._end <= self.row:
                length, self._arrays = next(self._batches)
                self._first, self._end = self._end, self._end + length
            if callable(self._arrays):  # batches that are skipped make no arrays
                self._arrays = self._arrays()
            end = min(stop, self._end)
            yield tuple(a[self.row - self._first : end - self._first] for a in self._arrays)
            self.row = end
            if end == self._end:
                self._arrays = ()


def _taken(places: list[_Place], piece: Piece, reach: int) -> _Place | None:
    """Take the place from the list that is closest before a piece, if any is within reach."""
    within = [p for p in places if p.group == piece.group and 0 <= piece.start - p.row <= reach]
    if not within:
        return None
    place = max(within, key=lambda p: p.row)
    places.remove(place)
    return place
