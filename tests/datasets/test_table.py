"""Checks of tables, and names and values in messages."""

import numpy as np
import pytest

from dgp_ppl import DataError
from dgp_ppl._errors import one_line
from dgp_ppl.datasets._table import (
    as_targets,
    check_names,
    file_task,
    quoted,
    shown,
    suggestion,
)  # fmt: skip


def test_long_lists_and_long_values_are_cut():
    assert quoted(["a", "b"]) == "'a', 'b'"
    assert quoted(range(20), limit=2) == "0, 1, ... (20 in all)"
    assert len(shown("x" * 100)) == 60
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("diabets", " (did you mean 'diabetes'?)"),
        ("ENERGY", " (did you mean 'uci/energy'?)"),
        ("nothing like it", ""),
    ],
)
def test_the_closest_names_are_suggested(name, text):
    assert suggestion(name, ["diabetes", "uci/energy", "step"]) == text


def test_columns_have_different_names():
    check_names("file", ["a", "b"])
    with pytest.raises(DataError, match="file: column 2 of 2 has no name"):
        check_names("file", ["a", ""])
    with pytest.raises(DataError, match="file: 'a' names more than one column"):
        check_names("file", ["a", "b", "a"])


@pytest.mark.parametrize(
    ("y", "whole", "task"),
    [([0, 1, 1], True, "binary"), ([0, 1, 1], False, "regression"), ([1, 2], True, "regression")],
)
def test_whole_zeros_and_ones_are_classes(y, whole, task):
    targets = np.array(y, float)
    assert file_task(targets, whole) == task
    assert as_targets(targets, task).dtype == (np.int64 if task == "binary" else np.float64)
