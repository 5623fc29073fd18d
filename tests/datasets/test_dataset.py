"""`Dataset`: its splits, and rows that repeat."""

import dataclasses

import numpy as np
import pytest

from dgp_ppl import datasets
from dgp_ppl._errors import DataError
from dgp_ppl.datasets import load


def small(rows, test_index=None):
    """Return the first rows of a data set."""
    data = load("diabetes")
    return dataclasses.replace(data, x=data.x[:rows], y=data.y[:rows], test_index=test_index)


class TestSplits:
    def test_its_own_come_first(self):
        data = small(6, (np.array([4, 1]), np.array([0])))
        (train, test), (second_train, second) = datasets.splits(data, 2, seed=5)
        assert (train.tolist(), test.tolist()) == ([0, 2, 3, 5], [4, 1])
        assert (second_train.tolist(), second.tolist()) == ([1, 2, 3, 4, 5], [0])
        assert len(datasets.splits(data, 1, seed=0)) == 1
        for error, num, seed, message in (
            (DataError, 3, 0, "num_splits is 3, .* 2 splits; wanted at most 2"),
            (ValueError, 0, 0, "splits: num_splits is 0, wanted at least 1"),
            (TypeError, 2.5, 0, "num_splits is 2.5, wanted an integer"),
            (ValueError, 1, -1, "splits: seed is -1, wanted at least 0"),
        ):
            with pytest.raises(error, match=message):
                datasets.splits(data, num, seed=seed)

    def test_random_ones_test_on_a_tenth_rounded_up(self):
        for rows, tests in ((3, 1), (10, 1), (11, 2), (442, 45)):
            for train, test in datasets.splits(small(rows), 3, seed=1):
                assert len(test) == tests
                assert sorted([*train, *test]) == list(range(rows))
                assert train.dtype == test.dtype == np.int64

    def test_groups_stay_together(self):
        groups = np.random.default_rng(0).integers(5, size=(60, 2))
        for train, test in datasets.splits(small(60), 3, 0, groups):
            assert not {*map(tuple, groups[train])} & {*map(tuple, groups[test])}
            assert 6 <= len(test) <= 12
            assert sorted([*train, *test]) == list(range(60))
        for data, labels, message in (
            (small(60), np.arange(60) > 58, "groups has one of 59 of 60 rows, wanted"),
            (small(60), groups[1:], "groups has 59 labels, wanted one for each of 60"),
            (small(60, (np.arange(6),)), groups, "wanted .*without splits of their own"),
        ):
            with pytest.raises(DataError, match=message):
                datasets.splits(data, 3, 0, labels)

    def test_random_ones_depend_on_seed_and_split_alone(self):
        data = load("diabetes")
        first = datasets.splits(data, 3, seed=1)
        again = datasets.splits(data, 5, seed=1)
        for (_, test), (_, same) in zip(first, again, strict=False):
            np.testing.assert_array_equal(test, same)
        tests = [tuple(test) for _, test in again + datasets.splits(data, 5, seed=2)]
        assert len(set(tests)) == 10


def test_repeated_rows():
    x = np.array([[1.0, 0.0], [2.0, 3.0]])
    x_test = np.array([[1.0, -0.0], [0.0, 1.0], [2, 3], [2.0, 3.0 + 1e-12]])
    assert datasets.repeated_rows(x, x_test).tolist() == [True, False, True, False]
    x_single = x_test.astype(np.float32)
    assert datasets.repeated_rows(x, x_single).tolist() == [True, False, True, True]
    with pytest.raises(ValueError, match=r"x_test has shape \(4, 1\) and x \(2, 2\)"):
        datasets.repeated_rows(x, x_test[:, :1])
