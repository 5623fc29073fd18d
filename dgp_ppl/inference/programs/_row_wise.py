"""Whether what a model computes for a row depends on other rows, or on their number.

A mean over the rows of a plate does, and so does a prior whose scale is ``1 / len(x)``. Rows of
padding would change such models without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

_OURS = str(Path(__file__).parents[2])
_SITE = str(Path(jax.__file__).parents[1])
_TOOLS = tuple(f"{_SITE}/{name}/" for name in ("jax", "jaxlib", "equinox", "jaxtyping", "beartype"))
_ALONG_ROWS = ("argmax", "argmin", "cum", "fft", "rev", "scan", "sort")  # keep the shape, or may


def is_row_wise(trace: Callable[[int], ClosedJaxpr], size: int) -> bool:
    """Return whether a program treats each row alone, by its traces with two numbers of rows.

    No other axis may be as long. The library's own steps are row-wise. Of all other steps none may
    lose the axis of rows or run along it, and their numbers have to be the same.
    """
    one, more = trace(size), trace(size + 1)
    if any(_mixes(e, n) for found, n in ((one, size), (more, size + 1)) for e in _foreign(found)):
        return False
    numbers = [[v for e in _foreign(found) for v in _numbers(e)] for found in (one, more)]
    consts = zip(one.consts, more.consts, strict=False)
    return numbers[0] == numbers[1] and all(_is_prefix(a, b) for a, b in consts)


def _foreign(found: ClosedJaxpr) -> Iterator[Any]:
    """Yield the steps that the library's own functions did not make."""
    for eqn in found.jaxpr.eqns:
        frames = eqn.source_info.traceback.frames if eqn.source_info.traceback else []
        home = next((f.file_name for f in frames if not f.file_name.startswith(_TOOLS)), "")
        if not home.startswith(_OURS):
            yield eqn


def _inner(eqn: Any) -> list[Any]:
    """Return the steps of the programs in a step."""
    is_program = lambda a: isinstance(a, ClosedJaxpr | Jaxpr)  # noqa: E731
    found = jax.tree.leaves(list(eqn.params.values()), is_leaf=is_program)
    return [e for a in found if is_program(a) for e in getattr(a, "jaxpr", a).eqns]


def _mixes(eqn: Any, size: int) -> bool:
    axes = lambda v: getattr(v.aval, "shape", ()).count(size)  # noqa: E731
    before, name = max(map(axes, eqn.invars), default=0), eqn.primitive.name
    if before and name == "gather":
        shape, batched = eqn.invars[0].aval.shape, eqn.params["dimension_numbers"]
        own = sum(shape[axis] == size for axis in batched.operand_batching_dims)
        return eqn.params["slice_sizes"].count(size) + own < shape.count(size)
    lost = before > min(map(axes, eqn.outvars), default=0)
    along = name.startswith(_ALONG_ROWS)
    return bool(before and (lost or along)) or any(_mixes(e, size) for e in _inner(eqn))


def _numbers(eqn: Any) -> list[Any]:
    """Return the numbers in a step."""
    values = [v.val for v in eqn.invars if hasattr(v, "val")]
    own = [np.asarray(v).tolist() for v in values if np.ndim(v) == 0]
    return own + [v for e in _inner(eqn) for v in _numbers(e)]


def _is_prefix(a: Any, b: Any) -> bool:
    """Return whether a constant has the same first entries where there are more rows."""
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != b.ndim or a.dtype != b.dtype:
        return False
    return a.dtype == object or bool((a == b[tuple(map(slice, a.shape))]).all())
