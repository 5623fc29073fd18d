"""Rows of minibatches, the scale of their plate, and unbiased bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl.core._minibatch import stratified_rows

ROWS = jnp.arange(12.0)


def test_rows_are_distinct_and_in_range():
    for size, batch in ((7, 3), (5, 1), (101, 100), (8, 4), (6, 6), (2**31 - 1, 1000)):
        draw = lambda k, sizes=(size, batch): stratified_rows(k, *sizes)  # noqa: E731
        rows = np.asarray(jax.jit(jax.vmap(draw))(random.split(KEY, 300)), np.int64)
        assert rows.shape == (300, batch)
        assert rows.min() >= 0
        assert rows.max() < size
        assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()


def test_strata_of_equal_size_are_not_rotated():
    """So the devices of a mesh draw from their own rows."""
    rows = jax.jit(jax.vmap(lambda k: stratified_rows(k, 12, 4)))(random.split(KEY, 50))
    np.testing.assert_array_equal(rows // 3, np.tile(np.arange(4), (50, 1)))


def test_every_row_is_equally_likely():
    for size, batch in ((7, 3), (11, 1), (8, 2)):
        hit = lambda k, n=size, b=batch: jnp.zeros(n).at[stratified_rows(k, n, b)].set(1)  # noqa: E731
        assert_mean(jax.jit(jax.vmap(hit))(random.split(KEY, 100_000)), batch / size)


def test_the_whole_range_of_a_large_set_is_reached():
    size, batch = 2**31 - 1, 4
    rows = jax.jit(jax.vmap(lambda k: stratified_rows(k, size, batch)))(random.split(KEY, 20_000))
    uniform = np.asarray(rows, np.float64) / size
    for power in (1, 2):
        assert_mean(uniform**power, np.full(batch, 1 / (power + 1)))


def run(program, **kwargs):
    return handlers.trace(handlers.seed(program, KEY)).get_trace(**kwargs)


def observed(x, batch_size):
    """A model of independent standard normals."""
    with dgp.minibatch(x, batch_size=batch_size) as x:
        numpyro.sample("y", dist.Normal(0, 1), obs=x)


def test_the_plate_scales_by_rows_over_batch_and_nothing_else_does():
    assert run(observed, x=ROWS, batch_size=4)["y"]["scale"] == 3
    assert run(observed, x=ROWS, batch_size=None)["y"]["scale"] in (None, 1)
    halved = handlers.scale(observed, scale=0.5)
    assert run(halved, x=ROWS, batch_size=4)["y"]["scale"] == 1.5


def test_rows_of_all_arrays_go_together():
    with (
        handlers.seed(rng_seed=3),
        dgp.minibatch(ROWS, 2 * ROWS[:, None], None, batch_size=5) as (a, b, none),
    ):
        assert none is None
        assert (a.shape, b.shape) == ((5,), (5, 1))
        np.testing.assert_array_equal(2 * a, b[:, 0])
        assert len(np.unique(a)) == 5


def test_all_rows_come_in_their_order():
    for batch_size in (None, 12, 50):
        with dgp.minibatch(ROWS, batch_size=batch_size) as x:  # no key is needed
            np.testing.assert_array_equal(x, ROWS)


def test_errors():
    for message, call in (
        ("minibatch of 4 of 12 rows needs a random key.*seed", lambda: observed(ROWS, 4)),
        ("batch_size is 0, wanted at least 1", lambda: observed(ROWS, 0)),
        ("one common length N in front", lambda: dgp.minibatch(ROWS, ROWS[:5]).__enter__()),
        ("one common length N in front", lambda: dgp.minibatch(None).__enter__()),
        ("one common length N in front", lambda: dgp.minibatch(jnp.ones(())).__enter__()),
        ("no rows", lambda: dgp.minibatch(ROWS[:0]).__enter__()),
    ):
        with pytest.raises(ValueError, match=message):
            call()
