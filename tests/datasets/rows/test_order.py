"""`Order`: every row once a pass, with equal probability at every step."""

import numpy as np
import pytest
from support.helpers import slow

from dgp_ppl.datasets.rows._order import Order

N, B, WINDOW = 103, 7, 21


def rows(order, window):
    return np.concatenate([np.arange(a, b) for a, b in order.intervals(window)])


@pytest.mark.parametrize("lanes", [1, 2, 4, 200])
@pytest.mark.parametrize("chunk", [None, 1, 5, 16, 103, 200])
def test_a_pass_has_every_row_once(chunk, lanes):
    order = Order((1, 2), N, B, WINDOW, chunk, lanes)
    found = np.concatenate([rows(order, w) for w in range(N)])
    assert len(found) == WINDOW * N
    passes = found.reshape(WINDOW, N)
    np.testing.assert_array_equal(np.sort(passes), np.tile(np.arange(N), (WINDOW, 1)))
    assert (chunk is None) == bool((passes == np.arange(N)).all())


def test_passes_and_windows_have_their_own_order():
    order = Order((1, 2), N, B, WINDOW, 5)
    assert order.intervals(0) != order.intervals(N)  # the first window of another pass
    assert (order.shuffle(0) != order.shuffle(1)).any()
    assert Order((1, 3), N, B, WINDOW, 5).intervals(0) != order.intervals(0)
    assert Order((1, 2), N, B, WINDOW, 5).intervals(0) == order.intervals(0)
    np.testing.assert_array_equal(np.sort(order.shuffle(3).ravel()), np.arange(WINDOW))


@pytest.mark.parametrize("window", [0, 2, 5])
@pytest.mark.parametrize(("chunk", "lanes"), [(16, 1), (60, 1), slow(16, 3)])
def test_every_row_has_the_same_probability(window, chunk, lanes):
    """Also with a shorter last chunk, and in windows that go on into the next pass."""
    draws = 8000
    counts = np.zeros(N)
    for seed in range(draws):
        np.add.at(counts, rows(Order((seed,), N, B, WINDOW, chunk, lanes), window), 1)
    p = WINDOW / N
    z = (counts - draws * p) / np.sqrt(draws * p * (1 - p))
    assert np.abs(z).max() < 4.5  # of 103, which are correlated
    assert counts.sum() == draws * WINDOW


def test_lanes_have_equal_shares_of_every_window():
    """Each of four lanes has a quarter of the data, in which it reads one chunk after another."""
    order = Order((1,), 4000, 10, 200, 100, lanes=4)
    for window in range(20):
        (offset,) = {order._pass(0, 100).offset}
        found = (rows(order, window) - offset) % 4000
        np.testing.assert_allclose(np.bincount(found // 1000), 50, atol=2)
        assert all(len(np.unique(part // 100)) <= 2 for part in np.split(np.sort(found), 4))
