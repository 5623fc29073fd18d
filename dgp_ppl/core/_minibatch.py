"""Minibatches: a ``numpyro.plate`` whose rows are cheap to draw."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jaxtyping import Array, Int
from numpyro.primitives import Messenger

from dgp_ppl._typing import PRNGKey

__all__ = ["minibatch", "stratified", "stratified_rows", "whole_plates"]


@partial(jax.jit, static_argnums=(1, 2))
def stratified_rows(key: PRNGKey, size: int, subsample_size: int) -> Int[Array, " B"]:
    """`subsample_size` distinct rows of `size`, each row equally likely.

    One row from each of B strata of consecutive rows, after a random rotation of all rows: the
    rotation alone makes every row's probability B/N, so minibatch bounds are unbiased. Their
    variance is about that of sampling without replacement, and smaller where neighbouring rows are
    alike. It costs O(B), where a shuffle costs O(N).
    """
    edges = (np.arange(subsample_size + 1, dtype=np.int64) * size) // subsample_size
    start, width = edges[:-1].astype(np.uint32), np.diff(edges).astype(np.uint32)
    bits = random.bits(key, (subsample_size + 2,), jnp.uint32)
    # A word modulo N misses uniformity by N / 2³²; the sum of two by the square of that.
    shift = bits[-1] % np.uint32(size) + bits[-2] % np.uint32(size)
    row = start + bits[:-2] % width + shift % np.uint32(size)
    return jnp.where(row < size, row, row - np.uint32(size)).astype(jnp.int32)


class stratified(Messenger):  # noqa: N801 - a handler, named as NumPyro's are
    """Handler that makes subsampling plates draw `stratified_rows`.

    NumPyro draws a plate's rows by a Fisher-Yates scan on CPU, which for thousands of rows costs
    more than the step of a deep GP.
    """

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            msg["fn"] = _draw_rows


class whole_plates(Messenger):  # noqa: N801 - a handler, named as NumPyro's are
    """Handler under which every plate takes all of its rows, in their order."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            size = msg["args"][0]
            msg["args"], msg["value"] = (size, None), jnp.arange(size)


def _draw_rows(size: int, subsample_size: int, rng_key: PRNGKey | None = None) -> Array:
    if rng_key is None:
        raise ValueError(
            f"a minibatch of {subsample_size} of {size} rows needs a random key: run the model "
            "under numpyro.handlers.seed or through SVI. NUTS and HMC take all rows: leave out "
            "batch_size"
        )
    return stratified_rows(rng_key, size, subsample_size)


@jax.jit
def _take(array: Array, rows: Int[Array, " B"]) -> Array:
    return array[rows]


@contextlib.contextmanager
def minibatch(
    *arrays: Array | None, batch_size: int | None = None, name: str = "data"
) -> Iterator[Any]:
    """A data plate, with a fresh minibatch of the rows of all arrays.

    ``with minibatch(x, y, batch_size=B) as (x, y):`` is ``numpyro.plate("data", N, B)`` with the
    rows taken; the plate scales the log-likelihood by N/B, and nothing else does.

    Args:
        *arrays: arrays that lead with N; None stays None.
        batch_size: rows B of a minibatch; None, or N and more, takes all rows in their order.
        name: the plate's name.

    Yields:
        The arrays' rows, as a tuple; a single array comes as itself.

    Raises:
        ValueError: if the arrays differ in length, or `batch_size` is not positive.
    """
    sizes = {jnp.shape(a)[0] for a in arrays if a is not None and jnp.ndim(a) > 0}
    if len(sizes) != 1:
        shapes = [None if a is None else jnp.shape(a) for a in arrays]
        raise ValueError(
            f"minibatch: the arrays have shapes {shapes}, wanted one common length N in front"
        )
    (size,) = sizes
    if size == 0:
        raise ValueError("minibatch: the arrays have no rows")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"minibatch: batch_size is {batch_size}, wanted at least 1, or None")
    subsample = None if batch_size is None or batch_size >= size else int(batch_size)
    with stratified():
        plate = numpyro.plate(name, size, subsample_size=subsample)
    with plate as rows:
        taken = tuple(a if a is None or subsample is None else _take(a, rows) for a in arrays)
        yield taken[0] if len(taken) == 1 else taken
