"""Programs that make a number of steps: compiled once on a CPU, in static blocks elsewhere.

If the number is an argument of the program, one program serves all numbers. The compiler then does
not know when the loop ends. On a CPU that costs nothing. On a GPU the host evaluates the condition,
so each step waits for the host, and no CUDA graph spans it. There a number is the sum of a few
lengths, each compiled when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

__all__ = ["StepProgram", "blocks", "runs_on_cpu"]

_LENGTHS = (100, 10, 1)


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
    """Return whether programs with these arrays run on a CPU."""
    arrays = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array)]
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
