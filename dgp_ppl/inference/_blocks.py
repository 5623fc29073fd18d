"""Programs of many steps or passes, in the form that suits the platform they run on.

Steps are compiled once on a CPU, in static blocks elsewhere. If their number is an argument of the
program, one program serves all numbers. The compiler then does not know when the loop ends. On a
CPU that costs nothing. On a GPU the host evaluates the condition, so each step waits for the host,
and no CUDA graph spans it. There a number is the sum of a few lengths, each compiled when it is
first needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from dgp_ppl._checks import is_traced

__all__ = ["PassProgram", "StepProgram", "blocks", "runs_on_cpu"]

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
    """Return whether programs with these arrays run on a CPU; so it is taken for traced ones."""
    arrays = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array) and not is_traced(a)]
    return all(device.platform == "cpu" for a in arrays[:1] for device in a.devices())


class StepProgram:
    """A compiled function that makes a number of steps.

    Args:
        function: a function of (state, num, first, *others) that makes `num` steps, and returns the
            new state and the steps' outputs. `num` is an integer or a traced one, and `first` the
            traced number of the first of them in this call.
        **options: options of `jax.jit`.
    """

    def __init__(self, function: Callable[..., tuple[Any, Any]], **options: Any) -> None:
        self._counted = jax.jit(function, **options)
        self._static = jax.jit(function, static_argnums=1, **options)

    def __call__(self, state: Any, num: int, *others: Any) -> tuple[Any, list[tuple[Any, int]]]:
        """Make `num` steps.

        Returns:
            The new state, and the outputs of each call with its number of steps.
        """
        if runs_on_cpu(state):
            state, outputs = self._counted(state, num, 0, *others)
            return state, [(outputs, num)]
        parts, first = [], 0
        for length in blocks(num):
            state, outputs = self._static(state, length, first, *others)
            parts.append((outputs, length))
            first += length
        return state, parts


class PassProgram:
    """A compiled function of one pass, mapped over many: one by one on a CPU, 16 at once elsewhere.

    One pass fills a CPU, and the memory of one is enough. On a GPU the launches of small programs
    decide their time, and 16 passes launch what one does.

    Args:
        function: a function of `(static, each, *others)` that makes one pass. `static` is hashable,
            and `each` what differs between passes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._mapped = jax.jit(self._map, static_argnums=(0, 1))

    def __call__(self, static: Any, each: Any, *others: Any) -> Any:
        """Make a pass for each entry of the leading axis of the arrays of `each`."""
        return self._mapped(1 if runs_on_cpu(each) else _PASSES_AT_ONCE, static, each, *others)

    def _map(self, at_once: int, static: Any, each: Any, *others: Any) -> Any:
        one = functools.partial(self._one, static, others)
        return lax.map(one, each, batch_size=None if at_once == 1 else at_once)

    def _one(self, static: Any, others: tuple[Any, ...], each: Any) -> Any:
        return self._function(static, each, *others)
