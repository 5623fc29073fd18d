"""`Blocks`: the minibatches of many steps on the device, read ahead by threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._messages import bad_cell
from dgp_ppl.datasets.rows._readers import Arrays, first_bad
from dgp_ppl.datasets.rows._rows import Rows

_BLOCK_BYTES = 2**26


class Block(NamedTuple):
    """The minibatches of consecutive steps."""

    arrays: tuple[Array, ...]  # rows on the device, [steps, B, ...] each
    numbers: Array  # of the rows in the source, [steps, B]
    read: Arrays  # the rows as they were read

    @staticmethod
    def of(rows: Rows, arrays: Arrays, numbers: np.ndarray) -> Block:
        """Move arrays of a source's rows to the device, in JAX's types of numbers."""
        made = [_canonical(rows, a, numbers) for a in arrays]
        moved = jax.device_put((tuple(made), numbers.astype(np.int32)))
        return Block(moved[0], moved[1], arrays)


def _canonical(rows: Rows, array: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return an array of a block in JAX's type; refuse numbers that this type does not hold."""
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"Rows: an array is of type {array.dtype}, wanted real numbers; make them by Rows.map"
        )
    kind = jax.dtypes.canonicalize_dtype(array.dtype)
    if kind != array.dtype:
        limit = float((np.finfo if kind.kind == "f" else np.iinfo)(kind).max)
        if at := first_bad(array, limit, may_miss=True):
            what = f"is beyond {kind}, in which JAX computes; scale the rows (Standardizer.rows)"
            raise bad_cell("Rows", array[at], rows.place(numbers[at[:2]]), what)
    return array.astype(kind, copy=False)


class _Ahead:
    """Reads pieces in a thread, by the number of each piece, and the next one ahead."""

    def __init__(self, name: str, read: Callable[[int], Any]) -> None:
        self._thread, self._read = ThreadPoolExecutor(1, f"dgp_ppl {name}"), read
        self._pieces: dict[int, Future[Any]] = {}
        self._x64 = jax.dtypes.canonicalize_dtype(float) == np.float64  # a thread has its own

    def get(self, number: int, following: int | None) -> Any:
        wanted = [n for n in (number, following) if n is not None]
        pieces = self._pieces
        self._pieces = {n: pieces.get(n) or self._thread.submit(self._work, n) for n in wanted}
        return self._pieces[number].result()

    def _work(self, number: int) -> Any:
        with jax.enable_x64(self._x64):
            return self._read(number)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


class Blocks:
    """Reads the minibatches of steps in blocks, ahead of the steps.

    One thread reads windows of rows, and another cuts blocks from them and moves these to the
    device. Both work one piece ahead. They end with `close`, or when nothing refers to this object.

    Blocks have at most `steps` steps, and 64 MB. Nothing is read ahead beyond the step `last`.
    """

    def __init__(
        self, rows: Rows, seed: tuple[int, ...], batch_size: int, steps: int, last: int
    ) -> None:
        self.rows, self.last = rows, last
        self.order = rows.order(seed, batch_size)
        self.steps = max(1, min(steps, _BLOCK_BYTES // (batch_size * rows.row_bytes)))
        self._blocks = _Ahead("blocks", self._cut)
        self._windows = _Ahead("windows", self._window)

    def close(self) -> None:
        self._blocks.close()
        self._windows.close()

    def at(self, step: int) -> Block:
        """Return the block that begins at a step, and start reading the next one."""
        following = step + self.steps
        return self._blocks.get(step, following if following < self.last else None)

    def _cut(self, step: int) -> Block:
        end, parts = step + self.steps, []
        while step < end:
            window, offset = divmod(step, self.order.steps)
            is_last = (window + 1) * self.order.steps >= self.last
            arrays, shuffled = self._windows.get(window, None if is_last else window + 1)
            taken = shuffled[offset : offset + end - step]
            # Nine times as fast as indexing, of contiguous arrays.
            parts.append(tuple(np.take(a, taken, axis=0) for a in arrays))
            step += len(taken)
        *arrays, numbers = (
            p[0] if len(p) == 1 else np.concatenate(p) for p in zip(*parts, strict=True)
        )
        return Block.of(self.rows, tuple(arrays), numbers)

    def _window(self, number: int) -> tuple[Arrays, np.ndarray]:
        """Return the arrays of a window with the rows' numbers, and an order of its rows."""
        intervals = self.order.intervals(number)
        numbers = np.concatenate([np.arange(a, b, dtype=np.int32) for a, b in intervals])
        arrays = (np.ascontiguousarray(a) for a in self.rows.read(intervals))
        return (*arrays, numbers), self.order.shuffle(number)
