"""Which arguments of a model have a row for each row of the data, and their padding.

An array that the model hands to `dgp_ppl.minibatch` has rows. Programs are compiled for numbers of
rows, so calls that differ in it share one if the rows are padded.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr
from numpyro import handlers

from dgp_ppl._partition import Call, CallArrays, Partition, Streamed, alone, on_device
from dgp_ppl._typing import Model
from dgp_ppl.core._minibatch import padded, recorded, whole_plates
from dgp_ppl.inference.programs._data import check_padding
from dgp_ppl.inference.programs._handlers import Sites, survey
from dgp_ppl.inference.programs._row_wise import is_row_wise
from dgp_ppl.likelihoods import log_density

_MANY_ROWS = 1009  # of a trace, or more
_LEAST_WIDTH = 32  # of the steps between the numbers of rows that fits are padded to

_Numbers = frozenset[int]  # of arrays among the leaves of a `CallArrays`


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """The shapes of a call's arrays. Calls are equal if they differ in their numbers of rows."""

    treedef: Any
    leaves: tuple[tuple[bool, tuple[int, ...], Any], ...]  # whether it is as long as x; the rest
    num_args: int  # of positional arguments
    size: int = dataclasses.field(compare=False)

    @staticmethod
    def of(data: CallArrays, size: int) -> _Shapes:
        leaves, treedef = jax.tree.flatten(data)
        num = len(jax.tree.leaves((data.args, data.kwargs)))  # the guide's arrays come after these
        is_long = [i < num and jnp.shape(a)[:1] == (size,) for i, a in enumerate(leaves)]
        found = [(n, jnp.shape(a)[n:], a.dtype) for n, a in zip(is_long, leaves, strict=True)]
        num_args = len(jax.tree.leaves(data.args))
        return _Shapes(treedef, tuple(found), num_args, max(size, 2))  # one row would broadcast

    @property
    def many(self) -> int:
        """More rows than x has, even padded; the same for most numbers of rows."""
        return max(_MANY_ROWS, (2 << self.size.bit_length()) + 1)

    @property
    def long(self) -> _Numbers:
        """The arrays that are as long as x."""
        return frozenset(i for i, (is_long, *_) in enumerate(self.leaves) if is_long)

    def marked(self, numbers: _Numbers) -> Any:
        """Return a tree that says of each array whether it is one of these."""
        return self.treedef.unflatten([i in numbers for i in range(len(self.leaves))])

    def params(
        self, program: Callable[[CallArrays], Sites], longer: _Numbers = frozenset()
    ) -> dict[str, Any] | None:
        """Run a program on shapes, where some arrays have one row more.

        Returns:
            The shapes of its params, or None if it fails.
        """
        found: dict[str, Any] = {}

        def run(data: CallArrays) -> None:
            own = {n: s["value"] for n, s in program(data).items() if s["type"] == "param"}
            found.update(jax.tree.map(jnp.shape, own))

        arrays = [
            jax.ShapeDtypeStruct((*[self.size + (i in longer)] * is_long, *shape), dtype)
            for i, (is_long, shape, dtype) in enumerate(self.leaves)
        ]
        try:
            with alone():
                jax.eval_shape(run, self.treedef.unflatten(arrays))
        except Exception:  # whatever a model raises
            return None
        return found

    def can_grow(self, program: Callable[[CallArrays], Sites], rows: _Numbers) -> bool:
        """Return whether a program runs, with the same params, if these arrays have more rows."""
        found = self.params(program, rows)
        return found is not None and found == self.params(program)


@lru_cache(maxsize=64)
def _taken(partition: Partition, shapes: _Shapes) -> tuple[_Numbers, frozenset[int]]:
    """Return which arrays the model hands to `minibatch`, and the sizes of minibatches."""
    taken, sizes = set(), set()

    def program(data: CallArrays) -> Sites:
        numbers = {id(a): i for i, a in enumerate(jax.tree.leaves(data))}
        model = whole_plates(partition.model)
        with recorded() as calls:
            sites = survey(model, partition.join(data))
        sizes.update(model.subsamples)
        for arrays, batch_size in calls:
            taken.update(numbers[id(a)] for a in arrays if id(a) in numbers)
            sizes.update([] if batch_size is None else [batch_size])
        return sites

    shapes.params(program)
    return frozenset(taken) & shapes.long, frozenset(sizes)


def _hidden(partition: Partition, data: CallArrays, taken: _Numbers) -> Call:
    """Return the call with arrays whose rows `minibatch` alone can take."""
    rows = {id(a) for i, a in enumerate(jax.tree.leaves(data)) if i in taken}
    hide = lambda a: Streamed(a, jnp.arange(len(a)), len(a)) if id(a) in rows else a  # noqa: E731
    return Call(*jax.tree.map(hide, tuple(partition.join(data))))


@lru_cache(maxsize=64)
def _with_rows(partition: Partition, shapes: _Shapes) -> tuple[_Numbers, _Numbers, bool]:
    """Return which arrays have rows, which of them need not, and whether x can have more rows."""
    model, (taken, _) = whole_plates(partition.model), _taken(partition, shapes)

    def is_whole(numbers: _Numbers) -> bool:
        program = lambda data: survey(model, partition.join(data))  # noqa: E731
        return shapes.params(program, shapes.long - numbers) is not None

    whole = shapes.long - taken - {0}
    if whole and not is_whole(whole):
        whole = frozenset(i for i in whole if is_whole(frozenset([i])))
    if 0 in taken:
        rows = shapes.long - whole
        program = lambda data: survey(model, _hidden(partition, data, taken))  # noqa: E731
        return rows, frozenset(), shapes.can_grow(program, rows)
    # Such a model may take rows by their numbers, which fits any length.
    rows = frozenset(i for i in shapes.long if i < shapes.num_args)
    return rows, rows & whole, False


def arrays_with_rows(caller: str, model: Model, call: Call) -> tuple[CallArrays, float]:
    """Return which arrays of a call have a row for each row of x, its first argument.

    They are the arrays that the model hands to `minibatch` with x, and those without which it fails
    where x is longer. If it does not hand over x, all positional arguments as long as x have rows,
    with a warning where they need not. Also returns the most rows that the model takes in a block,
    of which each is computed alone; 0 if rows cannot be, and 1 if that is not known.
    """
    partition, data = Partition.split(model, call)
    shapes = _Shapes.of(data, len(call.args[0]))
    rows, unsure, can_pad = _with_rows(partition, shapes)
    for i in unsure:
        text = (
            f"{caller}: argument {i} has as many entries as x has rows, and is taken for one entry "
            "per row; hand it to dgp_ppl.minibatch together with x, or if it is none, pass it by "
            "keyword"
        )
        warnings.warn(text, stacklevel=3)
    taken, sizes = _taken(partition, shapes)
    most = min(sizes, default=math.inf)
    if not can_pad:
        most = 1.0
    elif not _is_row_wise(partition, shapes, taken, rows, most, shapes.many, False):
        most = 0.0
    return shapes.marked(rows), most


def rows_of_minibatch(model: Model, call: Call) -> CallArrays | None:
    """Return which arrays have a row for each of x; None if `minibatch` does not take x."""
    partition, data = Partition.split(model, call)
    shapes = _Shapes.of(data, len(call.args[0]))
    if 0 not in _taken(partition, shapes)[0]:
        return None
    return shapes.marked(_with_rows(partition, shapes)[0])


@lru_cache(maxsize=64)
def _can_pad(partition: Partition, shapes: _Shapes, taken: _Numbers) -> bool:
    """Return whether model and guide use these arrays in `minibatch` alone, and skip padding."""

    def program(data: CallArrays) -> Sites:
        call = _hidden(partition, data, taken)
        sites = check_padding("fit", partition.model, call)
        # An objective of one's own may compare the scales of sites with the number of rows.
        if any(s["scale"] not in (None, 1) for s in sites.values() if s["type"] == "sample"):
            raise ValueError("a site is scaled")
        with padded(1):
            drawn = survey(partition.guide_with(data), call)
        noise = {n for n, s in sites.items() if s.get("infer", {}).get("is_auxiliary")}
        if noise & drawn.keys():  # of the rows of the guide's first call
            raise ValueError("the guide draws the rows' noise")
        return sites | drawn

    return shapes.can_grow(program, taken)


@lru_cache(maxsize=64)
def _is_row_wise(
    partition: Partition, shapes: _Shapes, taken: _Numbers, rows: _Numbers, most: float, many: int,
    by_place: bool, may_mix: bool = False,
) -> bool:  # fmt: skip
    """Return whether a model, whose minibatches have all of these rows, treats each alone.

    It is traced with so `many` rows, or as many as fit in a minibatch, and with few. With `may_mix`
    its rows may depend on each other, but not on their number, and are more than in a minibatch.
    """
    # No axis of something else may be taken for that of rows.
    others = {shapes.size, *(n for _, shape, _ in shapes.leaves for n in shape)}

    def undrawn(site: dict[str, Any]) -> jax.Array | None:
        if site["type"] != "sample" or site["is_observed"]:
            return None
        drawn = jax.eval_shape(lambda: site["fn"](**site["kwargs"]))
        return jnp.zeros(drawn.shape, drawn.dtype)

    def log_densities(data: CallArrays) -> list[Any]:
        seeded = handlers.seed(whole_plates(partition.model), random.PRNGKey(0))
        # Samplers run along rows or in loops, which says nothing of the model.
        model = handlers.substitute(seeded, substitute_fn=undrawn)
        call = _hidden(partition, data, taken)
        with padded(1):
            sites = handlers.trace(model).get_trace(*call.args, **call.kwargs)
            drawn = [s for s in sites.values() if s["type"] == "sample"]
            return [density(s) for s in drawn]

    def density(site: dict[str, Any]) -> Any:
        try:
            return log_density(site["fn"], site["value"])
        except NotImplementedError:  # a prior whose density NumPyro lacks
            return None

    def trace(size: int) -> ClosedJaxpr:
        arrays = [
            jax.ShapeDtypeStruct((*[size if i in rows else shapes.size] * is_long, *shape), dtype)
            for i, (is_long, shape, dtype) in enumerate(shapes.leaves)
        ]
        with alone():
            return jax.make_jaxpr(log_densities)(shapes.treedef.unflatten(arrays))

    try:
        least, largest = (int(most) + 1, many) if may_mix else (2, int(min(many, most - 1)))
        few = next(n for n in range(least, largest) if n not in others)
        many = next(n for n in range(largest, few, -1) if n not in others)
        return is_row_wise(trace, few, many, by_place=by_place, may_mix=may_mix)
    except Exception:  # whatever a model raises
        return False


def _bears_padding(partition: Partition, shapes: _Shapes) -> bool:
    """Return whether what a model computes for its rows is the same beside rows of padding."""
    taken, sizes = _taken(partition, shapes)
    most = min(sizes, default=math.inf)
    in_minibatches = most < shapes.size  # which have no padding
    return _is_row_wise(partition, shapes, taken, taken, most, shapes.many, True, in_minibatches)


def check_rows_alone(caller: str, model: Model, call: Call, guide: Any) -> None:
    """Raise a ValueError if rows of padding would change what a model computes for the others."""
    partition, data = Partition.split(model, call, guide)
    if not _bears_padding(partition, _Shapes.of(data, len(call.inputs))):
        raise ValueError(
            f"{caller}: num_rows is given, and what the model computes for a row depends on other "
            "rows or on their number, also of padding, wanted rows apart within "
            "dgp_ppl.minibatch; call fit for each data set"
        )


def padded_size(num: int) -> int:
    """Return the number of rows that so many are padded to: by 31, or an eighth of them, at most.

    >>> [padded_size(n) for n in (5, 70, 96, 97, 900)]
    [32, 96, 96, 128, 960]
    """
    width = max(_LEAST_WIDTH, 1 << (num // 8).bit_length() - 1) if num >= 8 else _LEAST_WIDTH
    return -(-num // width) * width


def split_padded(
    model: Model, call: Call, guide: Any, pad: bool = True
) -> tuple[Partition, CallArrays, float]:
    """Return `Partition.split` of a call, with padding of its rows if the programs skip it.

    Also returns the share of the rows that each step has: 1 for all rows, 0 for a source.
    """
    partition, data = Partition.split(model, call, guide)
    x = call.inputs
    if not isinstance(x, jax.Array | np.ndarray) or isinstance(x, Tracer) or not x.ndim:
        return partition, data, float(not isinstance(x, Streamed))
    shapes = _Shapes.of(data, len(x))
    taken, batch_sizes = _taken(partition, shapes)
    share = min(1.0, min(batch_sizes, default=math.inf) / max(1, len(x)))
    if not pad or not taken or not _can_pad(partition, shapes, taken):
        return partition, data, share
    if not _bears_padding(partition, shapes):
        return partition, data, share
    # All rows stay all rows.
    size = min([padded_size(len(x)), *(b for b in batch_sizes if b >= len(x))])
    leaves, treedef = jax.tree.flatten(data)
    for i in taken:
        rows = np.asarray(leaves[i])
        rows = np.concatenate([rows, np.repeat(rows[-1:], size - len(x), axis=0)])
        leaves[i] = on_device(rows)
    data = treedef.unflatten(leaves)._replace(num_rows=np.asarray(len(x), np.int32))
    return partition, data, share
