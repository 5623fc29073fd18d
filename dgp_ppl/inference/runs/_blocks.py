"""Programs of many steps or passes, in the form that suits the platform they run on.

On a CPU the number of steps is an argument of one compiled program, which serves all numbers. On a
GPU such a loop would be slow: the host evaluates its condition, so each step waits for the host,
and no CUDA graph spans the steps. There a number is the sum of a few lengths, each compiled once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr

from dgp_ppl._checks import is_traced
from dgp_ppl._partition import compiled
from dgp_ppl.linalg._threads import one_blas_thread

_LENGTHS = (100, 10, 1)
_PASSES_AT_ONCE = 16


def blocks(num: int) -> list[int]:
    """Return lengths whose sum is `num`, the same few for all numbers.

    >>> blocks(213)
    [100, 100, 10, 1, 1, 1]
    """
    lengths = []
    for length in _LENGTHS:
        lengths += [length] * (num // length)
        num %= length
    return lengths


def runs_on_cpu(tree: Any) -> bool:
    """Return whether the arrays live on a CPU. Traced arrays are assumed to."""
    arrays = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array) and not is_traced(a)]
    return all(device.platform == "cpu" for a in arrays[:1] for device in a.devices())


class StepProgram:
    """A compiled function of (state, num, first, *others) that makes `num` steps, often traced.

    It returns the new state and the steps' outputs; `first` steps were made before in this call.
    """

    def __init__(self, function: Callable[..., tuple[Any, Any]], **options: Any) -> None:
        self._counted = compiled(function, **options)
        self._static = compiled(function, static_argnums=1, **options)

    def __call__(self, state: Any, num: int, *others: Any) -> tuple[Any, list[tuple[Any, int]]]:
        """Make `num` steps; return the new state, and outputs with their numbers of steps."""
        if runs_on_cpu(state):
            state, outputs = self._counted(state, num, 0, *others)
            return state, [(outputs, num)]
        parts, first = [], 0
        for length in blocks(num):
            state, outputs = self._static(state, length, first, *others)
            parts.append((outputs, length))
            first += length
        return state, parts

    def trace(self, state: Any, *others: Any) -> ClosedJaxpr:
        """Return the traced program; on a CPU it is the one that `__call__` runs."""
        program = self._counted if runs_on_cpu(state) else self._static
        return program.trace(state, 1, 0, *others).jaxpr


class PassProgram:
    """A compiled function of one pass, mapped over many: one by one on a CPU, 16 at once elsewhere.

    One pass fills a CPU, and needs the memory of one. On a GPU the launches of small programs take
    the time, and 16 passes launch as many programs as one. The function is of (static, each,
    *others), where `static` is hashable, and `each` differs between passes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._mapped = compiled(self._map, static_argnums=(0, 1))

    def __call__(self, static: Any, each: Any, *others: Any) -> Any:
        """Make a pass for each entry of the leading axis of the arrays of `each`."""
        if not runs_on_cpu((each, others)):
            return self._mapped(_PASSES_AT_ONCE, static, each, *others)
        with one_blas_thread():
            return jax.block_until_ready(self._mapped(1, static, each, *others))

    def _map(self, at_once: int, static: Any, each: Any, *others: Any) -> Any:
        def one(entry: Any) -> Any:
            return self._function(static, entry, *others)

        return lax.map(one, each, batch_size=None if at_once == 1 else at_once)
