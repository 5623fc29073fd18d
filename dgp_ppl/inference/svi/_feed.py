"""`Feed`: the arrays of the steps of a fit to a source of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call, CallArrays, Streamed
from dgp_ppl._typing import PRNGKey
from dgp_ppl.datasets.rows import Rows
from dgp_ppl.datasets.rows._blocks import Block, Blocks
from dgp_ppl.datasets.rows._order import generator, seed_of
from dgp_ppl.datasets.rows._readers import CellCheck
from dgp_ppl.inference.programs._data import RowCheck

Position = tuple[tuple[int, ...], int]
"""Where a fit is in the order of a source's rows: the seed of the order, and a step."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class StepArrays:
    """An array of the model's arguments for each of several steps, [steps, ...]."""

    steps: Any


def at_step(data: CallArrays, step: Any) -> CallArrays:
    """Return the arrays of one step. Those that are the same for all steps are unchanged."""

    def one(a: Any) -> Any:
        is_of_steps = isinstance(a, StepArrays)
        return lax.dynamic_index_in_dim(a.steps, step, keepdims=False) if is_of_steps else a

    return jax.tree.map(one, data, is_leaf=lambda a: isinstance(a, StepArrays))


def source_of(caller: str, call: Call) -> tuple[Rows, int] | None:
    """Return the source among a model's arguments and the rows of a minibatch, or None."""
    if not any(isinstance(a, Rows) for a in (*call.args, *call.kwargs.values())):
        return None
    rows, *others = call.args or (None,)
    if not isinstance(rows, Rows) or any(isinstance(a, Rows) for a in others):
        raise TypeError(
            f"{caller}: wanted one Rows, for the model's first arguments: {caller}(key, "
            "model, guide, rows, batch_size=1000)"
        )
    size = call.kwargs.get("batch_size")
    if size is None:
        raise ValueError(
            f"{caller}: there is no batch_size, which a fit to Rows needs; wanted a number of "
            "rows, such as batch_size=1000, which the model passes to dgp_ppl.minibatch"
        )
    check_count(caller, "batch_size", size)
    if size >= len(rows):
        raise ValueError(
            f"{caller}: batch_size is {size}, wanted fewer than the {len(rows)} rows; for all rows "
            "together pass arrays: *rows.take(range(len(rows)))"
        )
    return rows.map(CellCheck(caller, complete=False)), int(size)


class Feed:
    """The arrays of each step of a fit to a source, for its loop; they are read ahead.

    `call` is the model's call, at first with the source and then with the first minibatch. A call
    of `at` is for `length` steps at most.
    """

    def __init__(
        self, call: Call, rows: Rows, batch_size: int, position: Position, steps: int, length: int
    ) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.seed, self.first = position
        self._blocks = Blocks(rows, self.seed, batch_size, length, self.first + steps)
        self.call = _first_call(call, rows, self._blocks.at(self.first))
        self._data: CallArrays | None = None
        self._check: RowCheck | None = None

    @property
    def length(self) -> int:
        return self._blocks.steps

    def start(self, data: CallArrays, check: RowCheck) -> CallArrays:
        """Return the arrays of the first steps, given the call's; `check` sees all later rows."""
        self._check, self._data = check, data
        return self.at(0)

    def at(self, step: int) -> CallArrays:
        """Return the arrays of steps from this one on, which is counted from the first one."""
        return self._arrays(self._blocks.at(self.first + step))

    def draws(self, key: PRNGKey, num: int) -> CallArrays:
        """Return minibatches at random as the arrays of so many steps."""
        return self._arrays(_random_block(self.rows, key, self.batch_size, num), repeats=True)

    def _arrays(self, block: Block, repeats: bool = False) -> CallArrays:
        _check_block(block, self._check, repeats)
        assert self._data is not None
        return _stacked(block, self._data)

    def position(self, step: int) -> Position:
        """Return where a step is, which is counted from the first one."""
        return self.seed, self.first + step

    def close(self) -> None:
        self._blocks.close()


def random_feed(
    key: PRNGKey, call: Call, rows: Rows, batch_size: int, num: int
) -> tuple[Call, Callable[[CallArrays, RowCheck], CallArrays]]:
    """Draw minibatches for so many steps; return the call with one, and a setter of the arrays."""
    block = _random_block(rows, key, batch_size, num)

    def checked(data: CallArrays, check: RowCheck) -> CallArrays:
        _check_block(block, check, repeats=True)
        return _stacked(block, data)

    return _first_call(call, rows, block), checked


def _check_block(block: Block, check: RowCheck | None, repeats: bool = False) -> None:
    """Check the rows of all minibatches of a block, each once if there may be repetitions."""
    if check is None:
        return
    arrays = [a.reshape(-1, *a.shape[2:]) for a in block.read]
    numbers = np.asarray(block.numbers).ravel()
    if repeats:
        numbers, first = np.unique(numbers, return_index=True)
        arrays = [a[first] for a in arrays]
    check(arrays, numbers)


def _random_block(rows: Rows, key: PRNGKey, batch_size: int, num: int) -> Block:
    """Draw minibatches, each of different rows from anywhere in the source."""
    rng = generator(seed_of(key), "minibatches")
    numbers = np.stack([rng.choice(len(rows), batch_size, replace=False) for _ in range(num)])
    arrays = rows.take(numbers.ravel())
    read = tuple(a.reshape(num, batch_size, *a.shape[1:]) for a in arrays)
    return Block.of(rows, read, numbers)


def _first_call(call: Call, rows: Rows, block: Block) -> Call:
    """Return the call with a minibatch of each array of the source as arguments."""
    streamed = [Streamed(a[0], block.numbers[0], len(rows)) for a in block.arrays]
    return dataclasses.replace(call, args=(*streamed, *call.args[1:]))


def _stacked(block: Block, data: CallArrays) -> CallArrays:
    """Return the arrays of each step: the streamed arguments are the first ones of a call."""
    numbers = StepArrays(block.numbers)
    streamed = [
        dataclasses.replace(first, rows=StepArrays(a), numbers=numbers)
        for first, a in zip(data.args, block.arrays, strict=False)
    ]
    return data._replace(args=(*streamed, *data.args[len(streamed) :]))
