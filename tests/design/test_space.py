"""Inputs: their rows and codes, and what is wrong with them."""

import numpy as np
import pytest
from support.helpers import KEY

from dgp_ppl.design import Study
from dgp_ppl.design._space import Space

BOUNDS = {"a": (-5.0, 10.0), "n": range(1, 4), "kind": ["x", "y", "z"], "b": [0.1, 1.0]}


def test_codes_are_scaled_levels_and_one_hot_categories():
    space = Space(BOUNDS)
    rows = [(-5.0, 2, "y", 1.0), (10.0, 3, "x", 0.1)]
    wanted = [[0, 0.5, 0, 1, 0, 1], [1, 1, 1, 0, 0, 0]]
    np.testing.assert_array_equal(space.encode(rows), wanted)
    moved = space.decode(np.array(wanted) * 0.5 + 0.25, rows)
    assert moved == [(-1.25, 2, "y", 1.0), (6.25, 3, "x", 0.1)]
    np.testing.assert_array_equal(space.free, [True] + 5 * [False])


def test_rows_that_fill_are_within_bounds_and_of_all_levels():
    space = Space(BOUNDS)
    for rows in (space.fill(100, 0), space.design(20, 0), space.near((10.0, 1, "x", 1.0), 100, 0)):
        assert all(tuple(space.row("test", space.named(r)).__iter__()) == r for r in rows)
        assert {(r[1], r[2], r[3]) for r in rows} >= {(1, "x", 1.0)}
    small = Space({"n": range(3), "kind": ["x", "y"]})
    assert len(set(small.fill(100, 0))) == small.size == 6


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({}, "bounds is empty"),
        ({1: (0.0, 1.0), "1": (0.0, 1.0)}, "names that are equal as text"),
        ({"a": (1.0, 1.0)}, r"bounds\['a'\] is \(1.0, 1.0\), wanted an interval"),
        ({"a": (0.0, float("inf"))}, r"bounds\['a'\]"),
        ({"a": ["x", 1]}, r"bounds\['a'\]"),
        ({"a": ["x"]}, r"bounds\['a'\]"),
        ({"a": [1, 1]}, r"bounds\['a'\]"),
        ({"a": [[1], [2]]}, r"bounds\['a'\]"),
        ({"a": [-1e308, 1e308]}, r"bounds\['a'\]"),
        ({"a": (0, 10**400)}, r"bounds\['a'\]"),
        ({"a": range(10**20)}, r"bounds\['a'\] is range\(0, 100000000000000000000\)"),
    ],
)
def test_wrong_bounds_are_named(bounds, text):
    with pytest.raises(ValueError, match=text):
        Study(KEY, bounds)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ({"a": 1.0}, r"x has the inputs \['a'\], wanted \['a', 'n'\]"),
        ({"a": 2.0, "n": 1}, r"x\['a'\] is 2.0, wanted a number from 0 to 1"),
        ({"a": 0.5, "n": 4}, r"x\['n'\] is 4, wanted one of \[1, 2, 3\]"),
        ({"a": "b", "n": 1}, r"x\['a'\] is b"),
    ],
)
def test_wrong_inputs_are_named(x, text):
    with pytest.raises(ValueError, match=text):
        Study(KEY, {"a": (0.0, 1.0), "n": range(1, 4)}).tell(x, 0.0)
