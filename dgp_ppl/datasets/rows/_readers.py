"""Readers: what rows of a source are read from."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import mmap
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import FLOAT32_MAX, TOO_LARGE, TOO_LONG, WHOLE_MAX, bad_cell, shown

Arrays = tuple[np.ndarray, ...]
Interval = tuple[int, int]

_CHUNK_BYTES = 2**16  # half the processor time of 16 kB
_MAPPED_INTERVALS = 64


class Reader(abc.ABC):
    """Arrays with N rows each, of which rows can be read."""

    num_rows: int
    chunk_rows: int  # neighbouring rows that are read at about the cost of one
    most_arcs: int = 2**16  # places at which the data can be read in turns
    buffer_bytes: int = 2**25  # of rows; two such buffers are in memory

    @abc.abstractmethod
    def read(self, intervals: Sequence[Interval]) -> Arrays:
        """Read the rows of intervals [start, stop), in the order in which they are given."""

    def take(self, numbers: np.ndarray) -> Arrays:
        """Read rows by their numbers, which increase."""
        return self.read(runs(numbers))

    def place(self, number: int) -> str:
        """Return where a row is, for messages."""
        return f"row {number} (from 0)"

    @abc.abstractmethod
    def identify(self, found: Any) -> None:
        """Update a hash with all numbers, or bytes of files, in 1 to 3 s per GB."""


def runs(numbers: np.ndarray) -> list[Interval]:
    """Return the intervals of neighbours among numbers of rows, which increase."""
    ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1), len(numbers)]
    return [(int(numbers[a]), int(numbers[b - 1]) + 1) for a, b in itertools.pairwise([0, *ends])]


def hash_arrays(found: Any, arrays: Arrays) -> None:
    """Update a hash with the types, shapes and entries of arrays."""
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())


def first_bad(array: np.ndarray, limit: float, may_miss: bool) -> tuple[int, ...]:
    """Return the position of the first number beyond a limit, or NaN if none may miss; else ()."""
    if array.dtype.kind == "f":
        limit = np.float64(limit)  # a number of Python would be rounded to the array's precision
    bad = ~((array >= -limit) & (array <= limit))
    if may_miss:
        bad &= array == array  # not NaN
    return tuple(map(int, np.argwhere(bad)[0])) if bad.any() else ()


@dataclasses.dataclass(frozen=True)
class CellCheck:
    """A check of inputs and targets when they are read, for `Rows.map`.

    NaN, infinity, numbers beyond `largest` and whole numbers beyond 2^53 are errors. NaN is none in
    targets that need not be `complete`.
    """

    where: str
    x_names: Sequence[str] | None = None
    y_name: str = "y"
    largest: float = FLOAT32_MAX
    complete: bool = True

    def check(self, arrays: Sequence[np.ndarray], place: Callable[[int], str]) -> None:
        """Raise `DataError` about the first bad number; `place` says where a row of arrays is."""
        for what, array in zip("xy", arrays, strict=False):
            is_float = array.dtype.kind == "f"
            limit, fault = (self.largest, TOO_LARGE) if is_float else (WHOLE_MAX, TOO_LONG)
            if at := first_bad(array, limit, what == "y" and not self.complete):
                name = f"the target {shown(self.y_name)}"
                if what == "x":
                    name = f"column {at[1]} of x"
                    name = f"column {shown(self.x_names[at[1]])}" if self.x_names else name
                raise bad_cell(f"{self.where}: {name}", array[at], place(at[0]), fault)


class ArrayReader(Reader):
    """Reads slices of arrays."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = tuple(arrays)
        self.num_rows = int(arrays[0].shape[0])
        row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in arrays)
        kept = [c[0] for a in arrays if (c := getattr(a, "chunks", None))]
        self._is_chunked = bool(kept)
        self.chunk_rows = max(kept) if kept else max(1, _CHUNK_BYTES // max(1, row_bytes))

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        num = sum(stop - start for start, stop in intervals)
        found = tuple(np.empty((num, *a.shape[1:]), a.dtype) for a in self.arrays)
        for array, out in zip(self.arrays, found, strict=True):
            file, done, rows = _ArrayOfFile.of(array), 0, array
            for i, (start, stop) in enumerate(intervals):
                # Pages that were read count as memory of the process as long as their mapping.
                if isinstance(file, _ArrayOfFile) and i % _MAPPED_INTERVALS == 0:
                    rows = file.open()
                out[done : (done := done + stop - start)] = rows[start:stop]
        return found

    def take(self, numbers: np.ndarray) -> Arrays:
        if not self._is_chunked:
            return super().take(numbers)
        parts = []  # a chunk is decompressed as a whole
        for number, group in itertools.groupby(numbers, lambda n: n // self.chunk_rows):
            start = int(number) * self.chunk_rows
            whole = self.read([(start, min(self.num_rows, start + self.chunk_rows))])
            rows = np.array(list(group)) - start
            parts.append(tuple(a[rows] for a in whole))
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def place(self, number: int) -> str:
        files = [repr(str(name)) for a in self.arrays if (name := getattr(a, "filename", None))]
        return super().place(number) + f" of {' and '.join(files)}" * bool(files)

    def identify(self, found: Any) -> None:
        found.update(f"{self.num_rows} rows".encode())
        for start in range(0, self.num_rows, self.chunk_rows):
            hash_arrays(found, self.read([(start, min(self.num_rows, start + self.chunk_rows))]))

    def __getstate__(self) -> dict[str, Any]:
        """Memory-mapped arrays are sent to other processes as the names of their files."""
        return self.__dict__ | {"arrays": tuple(_ArrayOfFile.of(a) for a in self.arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = (a.open() if isinstance(a, _ArrayOfFile) else a for a in state["arrays"])
        vars(self).update(state, arrays=tuple(arrays))


@dataclasses.dataclass(frozen=True)
class _ArrayOfFile:
    """Where a memory-mapped array is."""

    filename: str
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, array: Any) -> Any:
        """Return where an array is; one that is not a whole mapping of a file is unchanged."""
        if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap):
            return array
        # What was written to a copy-on-write mapping is not in the file.
        if array.filename is None or array.mode == "c":
            return array
        order = "C" if array.flags.c_contiguous else "F"
        return cls(str(array.filename), array.dtype, array.offset, array.shape, order)

    def open(self) -> np.memmap:
        try:
            return np.memmap(self.filename, self.dtype, "r", self.offset, self.shape, self.order)
        except ValueError as error:
            raise DataError(
                f"{self.filename} is shorter than when it was opened, wanted {self.shape[0]} rows; "
                "open it again"
            ) from error
