"""Minibatches: a ``numpyro.plate`` that draws its rows in O(B) time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax, random
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int
from numpyro import handlers
from numpyro.primitives import Messenger

from dgp_ppl._checks import as_array, check_count, is_traced
from dgp_ppl._partition import Streamed
from dgp_ppl._typing import AnyArray, PRNGKey
from dgp_ppl.core._near import NearRows


class _RowContext(NamedTuple):
    """How `minibatch` takes its rows."""

    mesh: Mesh | None = None  # the devices that the rows are divided among
    num_real: Any = None  # number of rows that are not padding; None without padding
    real: Array | None = None  # of the minibatch at hand, [B]; None if all rows are real
    has_runs: bool = False  # whether the rows at hand are runs of `NearRows`, or all of them
    calls: list[tuple[Any, int | None]] | None = None  # arrays and batch_size of each call so far


_PLAIN = _RowContext()
_context: ContextVar[_RowContext] = ContextVar("rows", default=_PLAIN)


@contextlib.contextmanager
def _with_context(**fields: Any) -> Iterator[None]:
    token = _context.set(_context.get()._replace(**fields))
    try:
        yield
    finally:
        _context.reset(token)


def stratified_rows(key: PRNGKey, size: Any, subsample_size: int) -> Int[Array, " B"]:
    """Draw B distinct rows of N, each with the same probability, in O(B) time.

    Each of B strata of consecutive rows contributes one row. So minibatch bounds are unbiased.
    Their variance is close to the variance of sampling without replacement, and smaller if
    neighbouring rows are similar. N may be traced; then B is below 65,536.
    """
    return (_of_strata if isinstance(size, int) else _of_strata_of_any)(key, size, subsample_size)


def _drawn(key: PRNGKey, size: Any, subsample_size: int) -> Int[Array, " B"]:
    # If B divides N, number i is of the rows from i N/B to (i + 1) N/B. If not, strata differ in
    # size, and a random rotation before gives every row the probability B/N all the same.
    bits = random.bits(key, (subsample_size + 2,), jnp.uint32)
    number = np.uint64 if isinstance(size, int) else np.uint32
    count, parts = np.arange(subsample_size + 1, dtype=number), number(subsample_size)
    size = number(size) if isinstance(size, int) else jnp.asarray(size, jnp.uint32)
    edges = count * (size // parts) + count * (size % parts) // parts
    start, widths = (a.astype(np.uint32) for a in (edges[:-1], edges[1:] - edges[:-1]))
    even, size = size % parts == 0, size.astype(np.uint32)
    # A random word modulo n is off uniform by n / 2³²; the sum of two by the square of that.
    unmoved = start + (bits[:-2] % widths + bits[-1] % widths) % widths
    shift = bits[-1] % size + bits[-2] % size
    row = start + bits[:-2] % widths + shift % size
    moved = jnp.where(row < size, row, row - size)
    return jnp.asarray(jnp.where(even, unmoved, moved), jnp.int32)


_of_strata = jax.jit(_drawn, static_argnums=(1, 2))
_of_strata_of_any = jax.jit(_drawn, static_argnums=2)


class stratified(Messenger):  # noqa: N801 - a handler, named as NumPyro's are
    """Handler that makes plates draw their minibatch with `stratified_rows`.

    NumPyro draws a plate's rows by a Fisher-Yates scan on CPU. With thousands of rows this takes
    longer than a training step of a deep GP.

    Args:
        num_real: number of the rows that are not padding, from which it draws; None for all.

    Attributes:
        drawn: the rows that were drawn last; None if another handler gave them.
    """

    def __init__(self, num_real: Any = None) -> None:
        super().__init__()
        self.num_real = num_real
        self.drawn: Array | None = None

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            msg["fn"] = self._draw

    def drawn_from(self, size: int, subsample_size: int) -> Any:
        """Return the number of the first rows that a minibatch is drawn from."""
        if self.num_real is None:
            return size
        return jnp.where(self.num_real < subsample_size, size, self.num_real)

    def _draw(self, size: int, subsample_size: int, rng_key: PRNGKey | None = None) -> Array:
        if rng_key is None:
            raise ValueError(
                f"a minibatch of {subsample_size} of {size} rows needs a random key: run the model "
                "under numpyro.handlers.seed or through SVI. NUTS and HMC need all rows: leave out "
                "batch_size"
            )
        size = self.drawn_from(size, subsample_size)
        self.drawn = rows = stratified_rows(rng_key, size, subsample_size)
        return rows


class _in_runs(stratified):  # noqa: N801 - a handler
    """Handler that draws runs of rows that follow each other in an order, as `NearRows` has it."""

    def __init__(self, order: Any, run: int) -> None:
        super().__init__()
        self.order, self.run = jnp.asarray(order), run

    def _draw(self, size: int, subsample_size: int, rng_key: PRNGKey | None = None) -> Array:
        # A run starts at any row, and goes on at the first row behind the last: so all rows are
        # equally likely.
        starts = super()._draw(size, subsample_size // self.run, rng_key)
        self.drawn = None
        return self.order[((starts[:, None] + jnp.arange(self.run)[None]) % size).ravel()]


class whole_plates(Messenger):  # noqa: N801 - a handler, named as NumPyro's are
    """Handler that makes every plate take all of its rows, in order, without subsampling.

    Attributes:
        subsamples: numbers of rows that plates would have taken instead.
    """

    def __init__(self, fn: Any = None) -> None:
        super().__init__(fn)
        self.subsamples: set[int] = set()

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            size, subsample = msg["args"]
            self.subsamples |= {subsample or size} - {size}
            msg["args"], msg["value"] = (size, None), jnp.arange(size)


class _holds(Messenger):  # noqa: N801 - a handler
    """Handler that notes at a plate's site, as ``arrays``, whose rows the plate takes."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        super().__init__()
        self.arrays = arrays

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            msg["arrays"] = self.arrays


@jax.jit
def _take(array: Array, rows: Int[Array, " B"]) -> Array:
    return array[rows]


def rows_on(mesh: Mesh) -> AbstractContextManager[None]:
    """Divide the rows of the minibatches of traced programs among the devices of a mesh."""
    return _with_context(mesh=mesh)


def padded(num_rows: Any) -> AbstractContextManager[None]:
    """Take only the first rows of data plates for real; the rows behind them are padding.

    Within the plate `observe` masks the padding. A minibatch is drawn from the real rows, if they
    are enough, and scaled by their number. The number may be traced; None: there is no padding.
    """
    return _with_context(num_real=num_rows)


@contextlib.contextmanager
def recorded() -> Iterator[list[tuple[tuple[Any, ...], int | None]]]:
    """Collect the arrays and the ``batch_size`` of each call of `minibatch`."""
    calls: list[tuple[tuple[Any, ...], int | None]] = []
    with _with_context(calls=calls):
        yield calls


def real_rows() -> Array | None:
    """Return which rows of the minibatch at hand are not padding, [B]; None if all are real."""
    return _context.get().real


def has_runs() -> bool:
    """Return whether the rows at hand are of a `minibatch` with ``near``."""
    return _context.get().has_runs


def _by_rows(array: Array, mesh: Mesh) -> Array:
    return lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec(mesh.axis_names)))


def _whole(array: Array, mesh: Mesh) -> Array:
    """Return an array on each device. XLA would divide how it is drawn, and send it around."""
    return lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec()))


def _divided(array: Array, mesh: Mesh) -> Array:
    """Return the rows divided among the devices of a mesh."""
    size = len(array)
    padding = [(0, -size % mesh.size)] + [(0, 0)] * (array.ndim - 1)
    return _by_rows(jnp.pad(_whole(array, mesh), padding), mesh)[:size]


def _from_own_strata(array: Array, rows: Int[Array, " B"], mesh: Mesh) -> Array:
    """Return the rows of `stratified_rows`, each from the device that holds its stratum."""
    num, width = len(rows), len(array) // len(rows)
    strata = _by_rows(array.reshape(num, width, *array.shape[1:]), mesh)
    places = _by_rows(_whole(rows - width * jnp.arange(num), mesh), mesh)
    return jax.vmap(lambda stratum, place: stratum[place])(strata, places)


def _taken(array: Array, rows: Int[Array, " B"], drawn: Array | None) -> Array:
    """Return the rows of an array, divided among the devices of the mesh at hand."""
    mesh = _context.get().mesh
    if mesh is None:
        return _take(array, rows)
    if rows is drawn and len(array) % len(rows) == len(rows) % mesh.size == 0:
        return _from_own_strata(array, rows, mesh)
    return _divided(_take(array, rows), mesh)


@contextlib.contextmanager
def minibatch(
    *arrays: AnyArray | Streamed | None,
    batch_size: int | None = None,
    name: str = "data",
    near: NearRows | None = None,
) -> Iterator[Any]:
    """Enter a data plate with a minibatch of the same random rows of all arrays.

    ``with minibatch(x, y, batch_size=B) as (x, y)`` is ``numpyro.plate("data", N, B)`` followed by
    taking the rows of x and y. Only the plate scales the log-likelihood by N/B.

    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import dgp_ppl as dgp
    >>> x, y = jnp.zeros((100, 2)), jnp.zeros(100)
    >>> with numpyro.handlers.seed(rng_seed=0), dgp.minibatch(x, y, batch_size=10) as (xb, yb):
    ...     print(xb.shape, yb.shape)
    (10, 2) (10,)

    Args:
        *arrays: arrays with a leading axis of length N. None is passed through. Arrays of a
            source, see `dgp_ppl.Rows`, are the rows that were read for this step.
        batch_size: number of rows B of a minibatch. None, or any number from N up, takes all rows
            in order.
        name: name of the plate.
        near: these rows, sorted: a minibatch then has blocks of near rows, as many whole ones as
            `batch_size` has room for, but at least one; see `local`. Unused if the second array,
            y, is None.

    Yields:
        The rows, a tuple with one entry per array, or the rows themselves for a single array.

    Raises:
        TypeError: if `batch_size` is not an integer.
        ValueError: if the arrays differ in length or are empty, if `batch_size` is not positive, or
            if there is no random key to draw a minibatch with; for arrays of a source, if
            the call has another `batch_size`, or all rows are wanted.
    """
    context = _context.get()
    if context.calls is not None:
        context.calls.append((arrays, batch_size))
    # A source whose rows are all here is an array.
    arrays = tuple(
        a.rows if isinstance(a, Streamed) and len(a.rows) == len(a) else a for a in arrays
    )
    shapes = [
        None if a is None else a.shape if isinstance(a, Streamed)
        else as_array("minibatch", f"array {i}", a).shape
        for i, a in enumerate(arrays)
    ]  # fmt: skip
    sizes = {shape[0] for shape in shapes if shape}
    if len(sizes) != 1:
        raise ValueError(
            f"minibatch: the arrays have shapes {shapes}, wanted one common length N in front"
        )
    (size,) = sizes
    if size == 0:
        raise ValueError("minibatch: the arrays have no rows")
    if batch_size is not None:
        check_count("minibatch", "batch_size", batch_size)
    subsample = None if batch_size is None or batch_size >= size else int(batch_size)
    streamed = next((a for a in arrays if isinstance(a, Streamed)), None)
    num_real = context.num_real
    handler: Any = stratified(num_real)
    if streamed is not None:  # the plate has the rows that have been read
        handler = handlers.substitute(data={name: streamed.numbers})
    if near is not None and all(a is not None for a in arrays[1:2]):  # else rows to predict
        _check_near(near, arrays, size, num_real)
        handler = _in_runs(near.order, near.block)
        if subsample is not None:
            subsample = max(1, subsample // near.block) * near.block
    if streamed is not None:
        _check_rows(len(streamed.rows), batch_size)
    with handler, _holds(arrays):
        plate = numpyro.plate(name, size, subsample_size=subsample)
    with plate as rows:
        if streamed is not None:
            _check_rows(len(streamed.rows), len(rows))
        whole = len(rows) == size  # in order: also under `whole_plates`
        drawn = handler.drawn if isinstance(handler, stratified) else None

        def taken_from(a: Any) -> Any:
            if isinstance(a, Streamed):
                return a.rows
            # JAX's arrays: a model may take rows of them by traced numbers.
            a = a if a is None else jnp.asarray(a)
            return a if a is None or whole else _taken(a, rows, drawn)

        taken = tuple(map(taken_from, arrays))
        with contextlib.ExitStack() as within:
            within.enter_context(_with_context(has_runs=near is not None))
            if num_real is not None:
                if isinstance(handler, stratified) and rows is handler.drawn:
                    share = jnp.asarray(handler.drawn_from(size, len(rows)), float) / size
                    within.enter_context(handlers.scale(scale=share))
                within.enter_context(_with_context(real=jnp.asarray(rows) < num_real))
            yield taken[0] if len(taken) == 1 else taken


def _check_near(near: NearRows, arrays: Any, size: int, num_real: Any) -> None:
    """Raise unless the rows at hand are all the rows that were sorted."""
    if any(isinstance(a, Streamed) for a in arrays):
        raise TypeError(
            "minibatch: near is given, and the arrays come from a source, wanted arrays: load the "
            "rows, or leave out near"
        )
    found = f"near has {len(near.order)} rows and the arrays {size}"
    is_same = len(near.order) == size and num_real is None
    for array, own in zip(arrays, (near.x, near.y), strict=False):
        if is_same and not is_traced(array, own) and jnp.shape(array) == own.shape:
            is_same = np.array_equal(np.asarray(array, own.dtype)[near.order], np.asarray(own))
            found = "near has other rows than the arrays"
    if not is_same:
        raise ValueError(
            f"minibatch: {found}, wanted the NearRows(x, y) of these arrays; GlobalInducing, which "
            "has other rows, and check_guide, which simulates y, do not go with them"
        )


def _check_rows(read: int, wanted: int | None) -> None:
    """Raise unless a plate takes as many rows as were read from a source."""
    if wanted != read:
        raise ValueError(
            f"minibatch: {read} rows of a source are at hand, and the model takes "
            f"{'all' if wanted is None else wanted} rows; wanted the batch_size of the call: "
            "minibatch(x, y, batch_size=batch_size). What needs all rows takes arrays only"
        )
