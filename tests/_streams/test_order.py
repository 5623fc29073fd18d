"""`Order`: every row once a pass, with equal probability at every step."""

import numpy as np
import pytest

from dgp_ppl._streams._order import Order

N, B, WINDOW = 103, 7, 21


def rows(order, window):
    return np.concatenate([np.arange(a, b) for a, b in order.intervals(window)])


@pytest.mark.parametrize("chunk", [None, 1, 5, 16, 103, 200])
def test_a_pass_has_every_row_once(chunk):
    order = Order((1, 2), N, B, WINDOW, chunk)
    found = np.concatenate([rows(order, w) for w in range(N)])
    assert len(found) == WINDOW * N
    for number in range(WINDOW):
        one = found[number * N : (number + 1) * N]
        np.testing.assert_array_equal(np.sort(one), np.arange(N))
        assert (chunk is None) == bool((one == np.arange(N)).all())


def test_passes_and_windows_have_their_own_order():
    order = Order((1, 2), N, B, WINDOW, 5)
    assert order.intervals(0) != order.intervals(N)  # the first window of another pass
    assert (order.shuffle(0) != order.shuffle(1)).any()
    assert Order((1, 3), N, B, WINDOW, 5).intervals(0) != order.intervals(0)
    assert Order((1, 2), N, B, WINDOW, 5).intervals(0) == order.intervals(0)
    np.testing.assert_array_equal(np.sort(order.shuffle(3).ravel()), np.arange(WINDOW))


@pytest.mark.parametrize("window", [0, 2, 5])
@pytest.mark.parametrize("chunk", [16, 60])
def test_every_row_has_the_same_probability(window, chunk):
    """Also with a shorter last chunk, and in windows that go on into the next pass."""
    draws = 8000
    counts = np.zeros(N)
    for seed in range(draws):
        np.add.at(counts, rows(Order((seed,), N, B, WINDOW, chunk), window), 1)
    p = WINDOW / N
    z = (counts - draws * p) / np.sqrt(draws * p * (1 - p))
    assert np.abs(z).max() < 4.5  # of 103, which are correlated
    assert counts.sum() == draws * WINDOW
