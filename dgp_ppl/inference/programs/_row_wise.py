"""Whether what a model computes for a row depends on other rows, on their number, or on its place.

A mean over the rows of a plate does, and so does a prior whose scale is ``1 / len(x)``. Rows of
padding would change such models without a word. A trend in ``jnp.arange(len(x))`` bears padding,
but not that predictions run in blocks.
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
# They keep the shape, or may.
_ALONG_ROWS = (
    "conv_general", "cum", "custom_call", "ffi_call", "fft", "io_callback", "pad", "pure_callback",
    "reduce_window", "rev", "scan", "select_and", "sort", "top_k",
)  # fmt: skip
_BY_PLACE = ("dynamic_slice", "gather", "iota", "random_bits", "slice")  # rows of what has none


def is_row_wise(
    trace: Callable[[int], ClosedJaxpr],
    few: int,
    many: int,
    *,
    by_place: bool = False,
    may_mix: bool = False,
) -> bool:
    """Return whether a program treats each row alone, by its traces with few and with many rows.

    With `by_place` it may know the places of rows, and with `may_mix` other rows.

    No other axis may be as long as the many. The library's own steps are row-wise. Of all other
    steps none may lose the axis of rows or run along it. All have to be the same in both traces,
    with the same numbers. So a branch on the number of rows is seen, unless it leads back, and a
    number made from it, also where it is an argument of the library's.
    """
    less, more = trace(few), trace(many)
    foreign = [(eqn, home) for eqn, home in _steps(more) if not home.startswith(_OURS)]
    at_plate = lambda home: home.startswith(f"{_SITE}/numpyro/")  # noqa: E731
    if not may_mix and any(_mixes(e, many, by_place or at_plate(home)) for e, home in foreign):
        return False
    steps = [
        # The library's programs may take the smaller of two sets, so their own steps can differ.
        [v for e, home in _steps(found) for v in _step(e, inner=not home.startswith(_OURS))]
        for found in (less, more)
    ]
    if steps[0] != steps[1] or len(less.consts) != len(more.consts):
        return False
    return all(_fits(a, b, by_place) for a, b in zip(less.consts, more.consts, strict=True))


def _steps(found: ClosedJaxpr) -> Iterator[tuple[Any, str]]:
    """Yield steps, and the file that made each."""
    for eqn in found.jaxpr.eqns:
        frames = eqn.source_info.traceback.frames if eqn.source_info.traceback else []
        yield eqn, next((f.file_name for f in frames if not f.file_name.startswith(_TOOLS)), "")


def _inner(eqn: Any) -> list[Any]:
    """Return the steps of the programs in a step."""
    is_program = lambda a: isinstance(a, ClosedJaxpr | Jaxpr)  # noqa: E731
    found = jax.tree.leaves(list(eqn.params.values()), is_leaf=is_program)
    return [e for a in found if is_program(a) for e in getattr(a, "jaxpr", a).eqns]


def _mixes(eqn: Any, size: int, by_place: bool) -> bool:
    axes = lambda v: getattr(v.aval, "shape", ()).count(size)  # noqa: E731
    before, name = max(map(axes, eqn.invars), default=0), eqn.primitive.name
    after = min(map(axes, eqn.outvars), default=0)
    if after and not before and not by_place and name in _BY_PLACE:
        return True
    if name.startswith("scatter") and (at := eqn.invars[0].aval.shape).count(size):
        numbers = eqn.params["dimension_numbers"]
        moved = {*numbers.inserted_window_dims, *numbers.scatter_dims_to_operand_dims}
        return any(at[axis] == size for axis in moved)
    if before and name == "gather":
        shape, batched = eqn.invars[0].aval.shape, eqn.params["dimension_numbers"]
        own = sum(shape[axis] == size for axis in batched.operand_batching_dims)
        return eqn.params["slice_sizes"].count(size) + own < shape.count(size)
    lost = before > after
    along = name.startswith(_ALONG_ROWS)
    axis = [eqn.params[n] for n in ("axis", "dimension", "dimensions") if n in eqn.params]
    if name == "pad":
        axis = [[n for n, ends in enumerate(eqn.params["padding_config"]) if any(ends)]]
    if along and axis:
        along = any(eqn.invars[0].aval.shape[int(n)] == size for n in np.ravel(axis))
    return bool(before and (lost or along)) or any(_mixes(e, size, by_place) for e in _inner(eqn))


def _step(eqn: Any, inner: bool = True) -> list[Any]:
    """Return the name of a step and the numbers in it, and those of the programs in it."""
    values = [v.val for v in eqn.invars if hasattr(v, "val")]
    own = [repr(np.asarray(v).tolist()) for v in values if np.ndim(v) == 0]  # NaN equals itself
    return [eqn.primitive.name, *own] + [v for e in _inner(eqn) * inner for v in _step(e)]


def _fits(a: Any, b: Any, by_place: bool) -> bool:
    """Return whether a constant has the same first entries where there are more rows.

    If not `by_place`, all its rows have to be the same.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != b.ndim or a.dtype != b.dtype:
        return False
    same = a.dtype == object or bool((a == b[tuple(map(slice, a.shape))]).all())
    grows = [i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n]
    return same and (by_place or all((a == a.take([0], i)).all() for i in grows))
