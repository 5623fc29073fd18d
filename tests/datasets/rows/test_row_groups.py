"""`RowGroups`: readings go on where others stopped, and begin anew where they cannot."""

import threading

import numpy as np
import pytest

from dgp_ppl.datasets.rows._row_groups import Piece, RowGroups

SIZES = [1000, 1000, 300]


class Counted:
    """Row groups of their rows' numbers, in batches of 10, which notes what is decoded."""

    def __init__(self):
        self.opened, self.decoded = [], 0

    def __call__(self, group):
        self.opened.append(group)
        for start in range(0, SIZES[group], 10):
            self.decoded += 10
            numbers = np.arange(start, start + 10) + 1000 * group
            yield 10, lambda numbers=numbers: (numbers, -numbers)


@pytest.fixture
def batches():
    return Counted()


def read(groups, *intervals, once=False):
    """Read (group, start, stop), and check the rows."""
    pieces, wanted = [], []
    for group, start, stop in intervals:
        pieces.append(Piece(group, start, stop, len(wanted)))
        wanted += range(1000 * group + start, 1000 * group + stop)
    found, negative = (groups.read_once if once else groups.read)(pieces)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(-negative, wanted)


def test_places_in_several_row_groups_go_on(batches):
    groups = RowGroups(SIZES, batches, most=4, reach=10)
    for turn in range(0, 90, 7):
        read(groups, (1, turn, turn + 7), (0, 500 + turn, 507 + turn), (0, turn, turn + 7))
    assert sorted(batches.opened) == [0, 0, 1]
    assert batches.decoded == 100 + 600 + 100
    read(groups, (0, 0, 20))  # before all places
    assert len(batches.opened) == 4


def test_a_place_is_not_taken_for_rows_far_after_it(batches):
    groups = RowGroups(SIZES, batches, most=4, reach=10)
    read(groups, (0, 0, 5))
    read(groups, (0, 15, 20))  # within reach
    read(groups, (0, 700, 710))
    read(groups, (0, 20, 25))
    assert batches.opened == [0, 0]


def test_places_that_were_used_long_ago_are_left(batches):
    groups = RowGroups(SIZES, batches, most=2, reach=0)
    for start in (0, 200, 400):
        read(groups, (0, start, start + 10))
    assert len(groups._places) == 2
    read(groups, (0, 10, 20))
    assert batches.opened == [0] * 4
    read(groups, (0, 410, 1000))  # to the end
    assert len(groups._places) == 1


def test_rows_that_are_read_once(batches):
    groups = RowGroups(SIZES, batches, most=4, reach=0)
    read(groups, (2, 299, 300), (0, 3, 4), (0, 900, 901), (0, 3, 4), once=True)
    assert not groups._places
    assert batches.opened == [0, 0, 2]  # a row that is wanted twice


def test_threads_read_at_the_same_time(batches):
    groups = RowGroups(SIZES, batches, most=3, reach=20)
    errors = []

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                start = int(rng.integers(280))
                read(groups, (int(rng.integers(3)), start, start + int(rng.integers(1, 20))))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
