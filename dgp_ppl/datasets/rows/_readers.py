"""Readers: what rows of a source are read from."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from dgp_ppl._errors import DataError

__all__ = [
    "ArrayReader", "Arrays", "BatchReader", "Interval", "MappedReader", "Reader", "Sliceable",
    "WithoutRows", "hash_arrays",
]  # fmt: skip

Arrays = tuple[np.ndarray, ...]
Interval = tuple[int, int]

_CHUNK_BYTES = 2**16  # half the processor time of 16 kB
_PIECE_ROWS = 2**13
_MAPPED_INTERVALS = 64
_IDENTITY_CHUNKS = 64  # that tell a source from others


class Sliceable(Protocol):
    """An array on disk: a memory-mapped one, or one of h5py or zarr."""

    @property
    def shape(self) -> Any:
        """Its shape, (N, ...)."""

    @property
    def dtype(self) -> Any:
        """Type of its entries."""

    def __getitem__(self, index: Any) -> Any: ...


class Reader(abc.ABC):
    """Arrays with N rows each, of which rows can be read.

    Attributes:
        num_rows: number of rows N.
        chunk_rows: number of neighbouring rows that are read at about the cost of one; None if rows
            can only be read in order.
        lanes: number of parts of the data that are read in turns. More than one mixes chunks that
            are large for a buffer.
        buffer_bytes: size of a buffer of rows, of which two are in memory.
    """

    num_rows: int
    chunk_rows: int | None
    lanes: int = 1
    buffer_bytes: int = 2**25

    @abc.abstractmethod
    def read(self, intervals: Sequence[Interval]) -> Arrays:
        """Read the rows of intervals [start, stop), in the order in which they are given."""

    def take(self, numbers: np.ndarray) -> Arrays:
        """Read rows by their numbers, which increase."""
        return self.read([(int(n), int(n) + 1) for n in numbers])

    def identify(self, found: Any) -> None:
        """Update a hash with what tells this source from others, at a low cost."""
        found.update(f"{self.num_rows} rows".encode())

    def __repr__(self) -> str:
        return type(self).__name__


def hash_arrays(found: Any, arrays: Arrays) -> None:
    """Update a hash with the types, shapes and entries of arrays."""
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())


class ArrayReader(Reader):
    """Reads slices of arrays."""

    def __init__(self, arrays: Sequence[Sliceable]) -> None:
        self.arrays = tuple(arrays)
        self.num_rows = int(arrays[0].shape[0])
        row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in arrays)
        kept = [c[0] for a in arrays if (c := getattr(a, "chunks", None))]
        self._is_chunked = bool(kept)
        self.chunk_rows = max([*kept, 1 if kept else max(1, _CHUNK_BYTES // max(1, row_bytes))])

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        num = sum(stop - start for start, stop in intervals)
        found = tuple(np.empty((num, *a.shape[1:]), a.dtype) for a in self.arrays)
        for array, out in zip(self.arrays, found, strict=True):
            file, done, rows = _ArrayOfFile.of(array), 0, array
            # What was written to a mapping need not be in the file yet on all systems.
            if isinstance(file, _ArrayOfFile) and file.is_read_only and file.order == "C":
                file.read(intervals, out)
                continue
            for i, (start, stop) in enumerate(intervals):
                # Pages that were read stay in memory as long as their mapping.
                if isinstance(file, _ArrayOfFile) and i % _MAPPED_INTERVALS == 0:
                    rows = file.open()
                out[done : (done := done + stop - start)] = rows[start:stop]
        return found

    def identify(self, found: Any) -> None:
        super().identify(found)
        length = min(int(self.chunk_rows or 1), self.num_rows)
        starts = np.unique(np.linspace(0, self.num_rows - length, _IDENTITY_CHUNKS).astype(int))
        for start in starts:
            hash_arrays(found, self.read([(int(start), int(start) + length)]))

    def __getstate__(self) -> dict[str, Any]:
        """Memory-mapped arrays are sent to other processes as the names of their files."""
        return self.__dict__ | {"arrays": tuple(_ArrayOfFile.of(a) for a in self.arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = (a.open() if isinstance(a, _ArrayOfFile) else a for a in state["arrays"])
        vars(self).update(state, arrays=tuple(arrays))

    def take(self, numbers: np.ndarray) -> Arrays:
        if not self._is_chunked:
            return super().take(numbers)
        parts = []  # a chunk is decompressed as a whole
        for number, group in itertools.groupby(numbers, lambda n: n // self.chunk_rows):
            start = int(number) * int(self.chunk_rows or 1)
            whole = self.read([(start, min(self.num_rows, start + int(self.chunk_rows or 1)))])
            rows = np.array(list(group)) - start
            parts.append(tuple(a[rows] for a in whole))
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


@dataclasses.dataclass(frozen=True)
class _ArrayOfFile:
    """Where a memory-mapped array is."""

    filename: str
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    is_read_only: bool

    @classmethod
    def of(cls, array: Any) -> Any:
        """Return where an array is; one that is not a whole mapping of a file is unchanged."""
        if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap):
            return array
        # What was written to a copy-on-write mapping is not in the file.
        if array.filename is None or array.mode == "c":
            return array
        order = "C" if array.flags.c_contiguous else "F"
        return cls(
            str(array.filename), array.dtype, array.offset, array.shape, order, array.mode == "r"
        )

    def open(self) -> np.memmap:
        """Map the array."""
        return np.memmap(self.filename, self.dtype, "r", self.offset, self.shape, self.order)

    def read(self, intervals: Sequence[Interval], out: np.ndarray) -> None:
        """Read rows of an array in C order into `out`.

        A mapping reads more around the first byte of an interval, on Linux 128 kB, and its pages
        count as memory of the process once they were read.
        """
        row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        view: Any = out.reshape(-1).view(np.uint8)
        done = 0
        with open(self.filename, "rb", buffering=0) as file:
            for start, stop in intervals:
                file.seek(self.offset + int(start) * row_bytes)
                end = done + int(stop - start) * row_bytes
                while done < end:
                    read = file.readinto(view[done:end])
                    if not read:
                        raise DataError(
                            f"{self.filename} ends before row {stop - 1}, wanted the "
                            f"{self.shape[0]} rows that it had when it was opened"
                        )
                    done += read


class BatchReader(Reader):
    """Reads an iterable of batches in order, and from its beginning to go back."""

    chunk_rows = None

    def __init__(self, batches: Iterable[Any], num_rows: int) -> None:
        self.__setstate__((batches, num_rows))

    def __getstate__(self) -> tuple[Iterable[Any], int]:
        return self.batches, self.num_rows  # a copy begins a pass of its own

    def __setstate__(self, state: tuple[Iterable[Any], int]) -> None:
        self.batches, self.num_rows = state
        self._lock = threading.Lock()
        self._rows: Iterator[Arrays] = iter(())
        self._position = self.num_rows  # of the next row
        self._rest: Arrays | None = None

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        with self._lock:
            try:
                parts = [part for start, stop in intervals for part in self._parts(start, stop)]
            except BaseException:
                self._position = self.num_rows  # the next read begins a pass
                raise
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _parts(self, start: int, stop: int) -> Iterator[Arrays]:
        if start < self._position:
            self._rows, self._position, self._rest = self._begin(), 0, None
        while self._position < stop:
            batch = self._rest if self._rest is not None else next(self._rows)
            length = len(batch[0])
            skip = min(length, max(0, start - self._position))
            end = min(length, stop - self._position)
            if skip < end:
                yield tuple(a[skip:end] for a in batch)
            self._position += end
            self._rest = tuple(a[end:] for a in batch) if end < length else None
        if self._position == self.num_rows:
            next(self._rows, None)  # checks that the pass ends here

    def _begin(self) -> Iterator[Arrays]:
        """Yield the batches of a pass, and check that it has the rows that it should have."""
        rows = 0
        for batch in self.batches:
            arrays = _arrays_of(batch)
            if arrays and len(arrays[0]):
                rows += len(arrays[0])
                if rows > self.num_rows:
                    break
                yield arrays
        if rows != self.num_rows:
            more = rows > self.num_rows
            raise DataError(
                f"Rows.from_batches: a pass over the batches has {rows}{' or more' * more} rows, "
                f"wanted num_rows = {self.num_rows}"
            )


def _arrays_of(batch: Any) -> Arrays:
    """Return the arrays of a batch, which must have equally many rows."""
    arrays = tuple(np.asarray(a) for a in (batch if isinstance(batch, tuple | list) else (batch,)))
    if len({a.shape[:1] for a in arrays}) > 1 or any(not a.ndim for a in arrays):
        raise DataError(
            f"Rows.from_batches: a batch has arrays of shapes {[a.shape for a in arrays]}, wanted "
            "one common length in front"
        )
    return arrays


class MappedReader(Reader):
    """Applies a function to the rows that another reader reads."""

    def __init__(self, reader: Reader, function: Callable[..., Any]) -> None:
        self.reader, self.function = reader, function
        self.num_rows, self.chunk_rows = reader.num_rows, reader.chunk_rows
        self.lanes, self.buffer_bytes = reader.lanes, reader.buffer_bytes

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        return self._apply(self.reader.read(intervals))

    def take(self, numbers: np.ndarray) -> Arrays:
        return self._apply(self.reader.take(numbers))

    def identify(self, found: Any) -> None:
        self.reader.identify(found)

    def _apply(self, arrays: Arrays) -> Arrays:
        """Apply the function to pieces, whose temporary arrays stay in the processor's caches."""
        rows = len(arrays[0])
        first = self._made(tuple(a[:_PIECE_ROWS] for a in arrays))
        if rows <= _PIECE_ROWS:
            return first
        found = tuple(np.empty((rows, *a.shape[1:]), a.dtype) for a in first)
        for start in range(0, rows, _PIECE_ROWS):
            piece = slice(start, start + _PIECE_ROWS)
            made = first if start == 0 else self._made(tuple(a[piece] for a in arrays))
            for out, array in zip(found, made, strict=True):
                out[piece] = array
        return found

    def _made(self, arrays: Arrays) -> Arrays:
        made = self.function(*arrays)
        made = tuple(np.asarray(a) for a in (made if isinstance(made, tuple | list) else (made,)))
        if any(a.shape[:1] != arrays[0].shape[:1] for a in made):
            raise ValueError(
                f"Rows.map: the function made arrays of shapes {[a.shape for a in made]} of "
                f"{len(arrays[0])} rows, wanted as many rows in each"
            )
        return made

    def __repr__(self) -> str:
        return f"{self.reader!r}, mapped"


class WithoutRows(Reader):
    """Reads all rows of another reader but some, whose numbers increase."""

    def __init__(self, reader: Reader, numbers: np.ndarray) -> None:
        self.reader, self.numbers = reader, numbers
        self.num_rows, self.chunk_rows = reader.num_rows - len(numbers), reader.chunk_rows
        self.lanes, self.buffer_bytes = reader.lanes, reader.buffer_bytes
        self._before = numbers - np.arange(len(numbers))  # kept rows before each that is left out

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        wanted = []
        for start, stop in intervals:
            left_out = self.numbers[
                slice(*np.searchsorted(self._before, [start, stop - 1], "right"))
            ]
            first, last = self._original(np.array([start, stop - 1]))
            cuts = [first, *(n for number in left_out for n in (number, number + 1)), last + 1]
            wanted += [
                (int(a), int(b)) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if a < b
            ]
        return self.reader.read(wanted)

    def take(self, numbers: np.ndarray) -> Arrays:
        return self.reader.take(self._original(numbers))

    def identify(self, found: Any) -> None:
        self.reader.identify(found)
        hash_arrays(found, (self.numbers,))

    def _original(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers of rows in the other reader."""
        return numbers + np.searchsorted(self._before, numbers, side="right")

    def __repr__(self) -> str:
        return f"{self.reader!r}, without {len(self.numbers)} rows"
