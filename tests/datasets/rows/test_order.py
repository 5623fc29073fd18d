"""`Order`: every row once a pass, with equal probability at every step."""

import itertools

import jax
import numpy as np

from dgp_ppl.datasets.rows._order import Order, generator, seed_of

N, B, WINDOW = 103, 7, 21


def rows(order, window):
    return np.concatenate([np.arange(a, b) for a, b in order.intervals(window)])


def test_a_pass_has_every_row_once():
    for arcs in (1, 4, 103, 200):
        order = Order((1, 2), N, B, WINDOW, arcs)
        passes = np.concatenate([rows(order, w) for w in range(N)]).reshape(WINDOW, N)
        np.testing.assert_array_equal(np.sort(passes), np.tile(np.arange(N), (WINDOW, 1)))


def test_passes_and_windows_have_their_own_order():
    order = Order((1, 2), N, B, WINDOW, 5)
    assert order.intervals(0) != order.intervals(N)  # the first window of another pass
    assert (order.shuffle(0) != order.shuffle(1)).any()
    assert Order((1, 3), N, B, WINDOW, 5).intervals(0) != order.intervals(0)
    assert Order((1, 2), N, B, WINDOW, 5).intervals(0) == order.intervals(0)
    np.testing.assert_array_equal(np.sort(order.shuffle(3).ravel()), np.arange(WINDOW))


def test_every_row_has_the_same_probability():
    """Also in windows that go on into the next pass, if the arcs differ in length."""
    for window, arcs in ((4, 1), (0, 6), (4, 6)):
        draws = 2000
        counts = np.zeros(N)
        for seed in range(draws):
            np.add.at(counts, rows(Order((seed,), N, B, WINDOW, arcs), window), 1)
        p = WINDOW / N
        z = (counts - draws * p) / np.sqrt(draws * p * (1 - p))
        assert np.abs(z).max() < 4.5  # of 103, which are correlated
        assert counts.sum() == draws * WINDOW


def test_steps_are_unbiased_on_sorted_rows():
    """A minibatch of a sorted column has the column's mean in expectation, at each step."""
    y = np.sort(np.random.default_rng(0).normal(size=N) ** 3)
    for arcs in (1, 6):
        found = []
        for seed in range(2000):
            order = Order((seed,), N, B, WINDOW, arcs)
            found.append(y[rows(order, 1)[order.shuffle(1)]].mean(axis=1))
        error = np.std(found, axis=0) / np.sqrt(len(found))
        assert (np.abs(np.mean(found, axis=0) - y.mean()) < 4.5 * error).all()


def test_arcs_have_equal_shares_of_every_window():
    """And windows follow each arc from a row of its own, so periods of the rows do not matter."""
    order = Order((1,), 4000, 10, 200, arcs=4)
    for window in range(20):
        found = rows(order, window)
        counts = np.bincount((found - found[0]) % 4000 // 1000, minlength=4)
        assert counts.max() <= 100
        assert len(order.intervals(window)) <= 4 * 2 + 1
    first = rows(order, 0)
    assert (np.diff(first[:50]) % 4000 == 1).sum() >= 48  # neighbours, but around the arc
    assert len({first[50 * arc] % 1000 for arc in range(4)}) == 4


def test_uses_of_a_key_have_draws_of_their_own():
    key = jax.random.key(7)
    uses = [("pass", 0), ("pass", 1), ("shuffle", 0), ("shuffle", 1), ("sample",), ("hold out",)]
    draws = [generator(seed_of(key), *use).standard_normal(4000) for use in uses]
    draws.append(np.random.default_rng(seed_of(key)).standard_normal(4000))  # a user's own
    for a, b in itertools.combinations(draws, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(4000)
    assert seed_of(jax.random.key(5)) == seed_of(jax.random.PRNGKey(5)) == (0, 5)
