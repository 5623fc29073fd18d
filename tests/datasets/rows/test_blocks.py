"""`Blocks`: any step can be found, blocks are read ahead, and errors of a thread arrive."""

import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import dgp_ppl as dgp
from dgp_ppl.datasets.rows._blocks import Blocks

N, B = 103, 7
X, Y = np.arange(2.0 * N).reshape(N, 2), np.arange(N)
ROWS = dgp.Rows.from_arrays(X, Y, buffer_rows=30)


@pytest.fixture
def blocks():
    made = []

    def make(rows=ROWS, seed=(0,), steps=5, last=1000):
        made.append(Blocks(rows, seed, B, steps, last))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_blocks_of_minibatches(blocks):
    """They lie across windows of four steps and across passes of the data."""
    read = blocks()
    found = [read.at(step) for step in range(0, 100, 5)]
    for block in found:
        x, y = block.arrays
        assert (x.shape, y.shape, x.dtype, y.dtype) == ((5, B, 2), (5, B), jnp.float32, jnp.int32)
        np.testing.assert_array_equal(y, block.numbers)
        np.testing.assert_array_equal(x, X[block.numbers])
        np.testing.assert_array_equal(block.read[0], x)
    numbers = np.concatenate([b.numbers for b in found])
    for window, rows in enumerate(numbers.reshape(-1, 4 * B)):
        if window * 4 * B // N == ((window + 1) * 4 * B - 1) // N:  # in one pass
            assert len(np.unique(rows)) == 4 * B
    assert len(np.unique(numbers)) == N


def test_any_step_can_be_found(blocks):
    wanted = np.concatenate([blocks().at(s).numbers for s in range(0, 60, 5)])
    for steps, first in ((5, 33), (1, 17), (9, 2)):
        block = blocks(steps=steps).at(first)
        np.testing.assert_array_equal(block.numbers, wanted[first : first + steps])
    assert (blocks(seed=(1,)).at(0).numbers != wanted[:5]).any()
    wide = dgp.Rows.from_arrays(np.zeros((20, 2**20), np.float32))
    assert blocks(wide).steps == 2  # of 28 MB


def test_the_next_block_is_read_ahead_and_none_after_the_last(blocks):
    reads, main = [], threading.get_ident()

    def note(x, y):
        reads.append(threading.get_ident())
        return x, y

    rows = ROWS.map(note)
    assert rows.row_bytes == 24
    reads.clear()
    read = blocks(rows, steps=4, last=8)  # one window each
    read.at(0)
    while len(reads) < 2:
        time.sleep(0.001)
    read.at(4)
    time.sleep(0.05)
    assert len(reads) == 2
    assert main not in reads


def test_an_error_of_the_thread_is_raised(blocks):
    def fail(x, y):
        if len(y) > 1:
            raise dgp.DataError("the disk is gone")
        return x, y

    with pytest.raises(dgp.DataError, match="the disk is gone"):
        blocks(ROWS.map(fail)).at(0)


def test_numbers_that_jax_would_change_are_refused(blocks):
    """float64 beyond float32, and int64 beyond int32."""
    x = X.copy()
    x[29, 1] = 1e39
    for array, words in (
        (x, r"1e\+39 in row 29 \(from 0\) is beyond float32"),
        (Y * 10**8, r"\d+00000000 in row \d+ \(from 0\) is beyond int32"),
    ):
        read = blocks(dgp.Rows.from_arrays(array, Y))
        with pytest.raises(dgp.DataError, match=words):
            list(map(read.at, range(0, 30, 5)))


def test_close_ends_the_threads(blocks):
    read = blocks()
    read.at(0)
    names = {"dgp_ppl blocks", "dgp_ppl windows"}

    def running():
        return [t for t in threading.enumerate() if t.name.rsplit("_", 1)[0] in names]

    assert running()
    read.close()
    assert not running()


@pytest.mark.usefixtures("x64")
def test_threads_have_the_floats_of_the_fit(blocks):
    """`jax.enable_x64` holds in one thread."""
    assert blocks().at(0).arrays[0].dtype == jnp.float64
    scale = dgp.Standardizer.fit(ROWS)
    assert blocks(scale.rows(ROWS)).at(0).arrays[0].dtype == jnp.float64
