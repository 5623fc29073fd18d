"""`Rows`: data that do not fit in memory, as a source of rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from dgp_ppl._checks import as_array, check_count, check_key
from dgp_ppl._errors import DataError
from dgp_ppl._typing import PRNGKey
from dgp_ppl.datasets.rows._order import Order, generator, seed_of
from dgp_ppl.datasets.rows._parquet import ParquetReader
from dgp_ppl.datasets.rows._readers import (
    ArrayReader,
    Arrays,
    CellCheck,
    Interval,
    Reader,
    hash_arrays,
)

_MOST_ROWS = 2**31 - 1  # numbers of rows are int32
_BLOCK_ROWS, _BLOCK_BYTES = 2**16, 2**27  # of a pass over all rows
_MAPPED_CHUNKS = 64  # of rows, spread over all, whose values from `map` tell a run from others
_FEWEST_ARCS = 16  # also of a buffer that holds fewer chunks
_ORDER = b"order 4"  # to change with `Order`: a checkpoint goes on in the order of its own


class Rows:
    """Rows of arrays that need not fit in memory: memory-mapped or in Parquet files.

    `fit` and `evaluate` take it instead of the model's first arguments::

        rows = dgp.Rows.from_parquet("trips", inputs=["hour", "miles"], target="fare")
        scale = dgp.Standardizer.fit(rows)
        rows = scale.rows(rows)
        fit = dgp.fit(key, model, guide, rows, z=z, batch_size=1000)

    Each of its arrays is one argument: x, [N, D], then y, [N] or [N, P], for tables. A thread reads
    the minibatches of many steps ahead, and memory does not grow with N.

    The order of the rows is random, and determined by the key of the fit. Minibatches are unbiased,
    also if the rows are sorted: see `docs/scale.md`.

    Attributes:
        num_rows: number of rows N.
    """

    def __init__(
        self,
        reader: Reader,
        buffer_rows: int | None = None,
        left_out: np.ndarray | None = None,
        functions: tuple[Callable[..., Any] | CellCheck, ...] = (),
    ) -> None:
        if buffer_rows is not None:
            check_count("Rows", "buffer_rows", buffer_rows)
        if reader.num_rows > _MOST_ROWS:
            raise DataError(
                f"Rows: there are {reader.num_rows:,} rows, wanted at most 2^31 - 1; fit a part of "
                "them, such as some of the files"
            )
        self._reader, self._buffer_rows, self._functions = reader, buffer_rows, functions
        # Numbers of the reader's rows that are left out, and of kept rows before each of them.
        self._left_out = np.zeros(0, np.int64) if left_out is None else left_out
        self._kept_before = self._left_out - np.arange(len(self._left_out))
        self.num_rows = reader.num_rows - len(self._left_out)

    @classmethod
    def from_arrays(cls, *arrays: Any, buffer_rows: int | None = None) -> Rows:
        """Read slices of arrays: memory-mapped ones, HDF5 datasets of h5py, or zarr arrays.

        >>> import numpy as np
        >>> import dgp_ppl as dgp
        >>> x, y = np.zeros((100, 3)), np.zeros(100)  # or np.load("x.npy", mmap_mode="r")
        >>> dgp.Rows.from_arrays(x, y)
        Rows(100 rows of [3], [])

        Args:
            *arrays: arrays with N rows each: anything with a shape, a dtype and slices of rows.
            buffer_rows: number of rows that are read and shuffled together; by default 32 MB of
                rows. Twice as many are in memory.

        Raises:
            TypeError: if one has no dtype or no numbers, has a mask, or is computed by Dask.
            ValueError: if the arrays differ in length or have no rows.
        """
        for i, array in enumerate(arrays):
            of_dask = getattr(array, "__dask_graph__", lambda: None)() is not None
            has_dtype = isinstance(getattr(array, "dtype", None), np.dtype)  # none of pandas' own
            if of_dask or not has_dtype or isinstance(array, np.ma.MaskedArray):
                raise TypeError(
                    f"Rows.from_arrays: array {i} is a {type(array).__name__}, wanted an array on "
                    "disk or in memory; pass numpy.asarray of lists, to_numpy() of frames and "
                    "filled(numpy.nan) of masked arrays, and write arrays of Dask by to_zarr"
                )
            if np.shape(array):
                as_array("Rows.from_arrays", f"array {i}", array[:1])  # raises unless of numbers
        shapes = [tuple(getattr(a, "shape", ())) for a in arrays]
        if len({s[:1] for s in shapes}) != 1 or not shapes[0] or not shapes[0][0]:
            raise ValueError(
                f"Rows.from_arrays: the arrays have shapes {shapes}, wanted one common length N in "
                "front, of at least 1"
            )
        return cls(ArrayReader(arrays), buffer_rows)

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str],
        *,
        target: str | Sequence[str] | None,
        inputs: Sequence[str] | None = None,
        buffer_rows: int | None = None,
    ) -> Rows:
        """Read columns of a Parquet file, or of all files of a folder, by `pyarrow.dataset`.

        Missing cells become NaN.

        Args:
            path: a file or a folder.
            target: the column of y, or several; None for inputs alone.
            inputs: the columns of x, [N, D]; None for all but the target.
            buffer_rows: number of rows that are read and shuffled together; by default 64 MB of
                rows. They come from 4 to 16 places of the data, whatever the row groups are.

        Raises:
            DataError: if a file cannot be read, or a column is missing or has no numbers.
        """
        return cls(ParquetReader(path, inputs, target), buffer_rows)

    def __len__(self) -> int:
        return self.num_rows

    def map(self, function: Callable[..., Any] | CellCheck) -> Rows:
        """Return rows that a function makes of these, when they are read.

        Args:
            function: from blocks of the arrays, NumPy arrays with equally many rows, to a tuple of
                arrays with as many rows. It must treat each row alike.
        """
        functions = (*self._functions, function)
        return Rows(self._reader, self._buffer_rows, self._left_out, functions)

    def blocks(self, num_rows: int | None = None) -> Iterator[Arrays]:
        """Yield the arrays of all rows in order, `num_rows` or at most 128 MB at a time."""
        if num_rows is None:
            num_rows = min(_BLOCK_ROWS, max(1, _BLOCK_BYTES // self.row_bytes))
        check_count("Rows.blocks", "num_rows", num_rows)
        for start in range(0, self.num_rows, num_rows):
            yield self.read([(start, min(self.num_rows, start + num_rows))])

    def take(self, numbers: Any) -> Arrays:
        """Return the rows with these numbers, which may repeat, in one pass at most."""
        distinct, where = self._checked_numbers("take", numbers)
        originals = self._originals(distinct)
        arrays = self._mapped(self._reader.take(originals), lambda row: originals[row])
        return tuple(a[where] for a in arrays)

    def place(self, number: int) -> str:
        """Return where the row with a number is: in which file, if there are files."""
        return self._reader.place(int(self._originals(number)))

    def sample(self, key: PRNGKey, num_rows: int) -> Arrays:
        """Return random rows, all different, in one pass at most.

        Args:
            key: random key.
            num_rows: number of rows; all rows, in order, if there are not more.
        """
        check_key("Rows.sample", key)
        check_count("Rows.sample", "num_rows", num_rows)
        if num_rows >= self.num_rows:
            return self.take(np.arange(self.num_rows))
        rng = generator(seed_of(key), "sample")
        return self.take(rng.choice(self.num_rows, num_rows, replace=False))

    def hold_out(self, key: PRNGKey, num_rows: int) -> tuple[Rows, Arrays]:
        """Split off random rows for a test: returns the other rows, and the arrays of the test.

        >>> import numpy as np
        >>> from jax import random
        >>> import dgp_ppl as dgp
        >>> rows = dgp.Rows.from_arrays(np.zeros((100, 3)), np.zeros(100))
        >>> train, (x_test, y_test) = rows.hold_out(random.key(0), 10)
        >>> train, x_test.shape
        (Rows(90 rows of [3], []), (10, 3))

        Args:
            key: random key.
            num_rows: number of rows of the test, which must fit in memory.
        """
        check_key("Rows.hold_out", key)
        check_count("Rows.hold_out", "num_rows", num_rows)
        if num_rows >= self.num_rows:
            raise ValueError(
                f"Rows.hold_out: num_rows is {num_rows}, wanted fewer than the {self.num_rows} rows"
            )
        rng = generator(seed_of(key), "hold out")
        numbers = np.sort(rng.choice(self.num_rows, num_rows, replace=False))
        return self.without(numbers), self.take(numbers)

    def without(self, numbers: Any) -> Rows:
        """Return all rows but those with these numbers, which differ, and are not all rows."""
        distinct, _ = self._checked_numbers("without", numbers)
        if len(distinct) >= self.num_rows:
            raise ValueError(f"Rows.without: no row is left of {self.num_rows}")
        left_out = np.union1d(self._left_out, self._originals(distinct))
        return Rows(self._reader, self._buffer_rows, left_out, self._functions)

    def _checked_numbers(self, method: str, numbers: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct numbers of rows, which increase, and the place of each given one."""
        given = np.asarray(numbers)
        if given.size and given.dtype.kind not in "iu":
            raise TypeError(
                f"Rows.{method}: numbers holds {given.dtype}, wanted integers: numbers of rows, "
                "such as np.flatnonzero(mask)"
            )
        distinct, where = np.unique(given.astype(np.int64), return_inverse=True)
        if not len(distinct) or distinct[0] < 0 or distinct[-1] >= self.num_rows:
            raise ValueError(f"Rows.{method}: wanted numbers of rows, from 0 to {len(self) - 1}")
        return distinct, where

    @cached_property
    def first(self) -> Arrays:
        """The first row of each array, [1, ...]."""
        return self.take([0])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all arrays."""
        return sum(a.nbytes for a in self.first)

    def identity(self) -> str:
        """Return a hash of all of the source's rows, and of what `map` makes of some of them."""
        found = hashlib.sha256(_ORDER)
        self._reader.identify(found)
        if len(self._left_out):
            hash_arrays(found, (self._left_out,))
        if self._functions:  # their code may count calls, or read what another process has not
            length = min(len(self), self._reader.chunk_rows)
            for start in np.unique(np.linspace(0, len(self) - length, _MAPPED_CHUNKS).astype(int)):
                hash_arrays(found, self.read([(int(start), int(start) + length)]))
        return found.hexdigest()

    def order(self, seed: tuple[int, ...], batch_size: int) -> Order:
        """Return the order in which a fit reads the rows."""
        buffer = self._buffer_rows or max(1, self._reader.buffer_bytes // self.row_bytes)
        window = max(1, min(buffer, self.num_rows) // batch_size) * batch_size
        arcs = max(_FEWEST_ARCS, window // self._reader.chunk_rows)
        return Order(seed, len(self), batch_size, window, min(arcs, window, self._reader.most_arcs))

    def read(self, intervals: Sequence[Interval]) -> Arrays:
        """Return the rows of intervals [start, stop), one after another."""
        for start, stop in intervals:
            if not 0 <= start <= stop <= self.num_rows:
                raise IndexError(
                    f"Rows.read: an interval is [{start}, {stop}), wanted numbers from 0 to "
                    f"{self.num_rows}"
                )
        if len(self._left_out):
            intervals = self._without_gaps(intervals)
        return self._mapped(
            self._reader.read(intervals),
            lambda row: np.concatenate([np.arange(*i) for i in intervals])[row],
        )

    def _originals(self, numbers: Any) -> np.ndarray:
        """Return the reader's numbers of rows."""
        return numbers + np.searchsorted(self._kept_before, numbers, side="right")

    def _without_gaps(self, intervals: Sequence[Interval]) -> list[Interval]:
        """Return the reader's intervals of the kept rows in intervals."""
        found = []
        for start, stop in intervals:
            ends = [start, stop - 1]
            gaps = self._left_out[slice(*np.searchsorted(self._kept_before, ends, "right"))]
            first, last = self._originals(ends)
            starts, stops = [first, *(gaps + 1)], [*gaps, last + 1]
            found += [(int(a), int(b)) for a, b in zip(starts, stops, strict=True) if a < b]
        return found

    def _mapped(self, arrays: Arrays, original: Callable[[int], Any]) -> Arrays:
        """Apply the functions of `map`; `original` finds the reader's number of a row of arrays."""
        for function in self._functions:
            if isinstance(function, CellCheck):
                function.check(arrays, lambda row: self._reader.place(int(original(row))))
                continue
            made = function(*arrays)
            made = made if isinstance(made, tuple | list) else (made,)
            made = tuple(np.asarray(a) for a in made)
            if any(a.shape[:1] != arrays[0].shape[:1] for a in made):
                raise ValueError(
                    f"Rows.map: the function made arrays of shapes {[a.shape for a in made]} of "
                    f"{len(arrays[0])} rows, wanted as many rows in each"
                )
            arrays = made
        return arrays

    def __repr__(self) -> str:
        shapes = ", ".join(str(list(a.shape[1:])) for a in self.first)
        return f"Rows({self.num_rows:,} rows of {shapes})"

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} are not in memory, wanted arrays; fit, evaluate, Standardizer.fit and "
            "initialize take Rows, and blocks, take and sample return arrays"
        )
