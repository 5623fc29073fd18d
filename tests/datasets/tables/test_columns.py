import datetime

import numpy as np
import pytest
from support.tables import arrow, fault

from dgp_ppl.datasets import read_table
from dgp_ppl.datasets.tables._columns import fit_input, fit_target, format_value
from dgp_ppl.datasets.tables._kinds import Kind

DAY = datetime.date(2024, 1, 1)


def learn(cells, rows=None, categorical=False):
    """Learn a column from some of its rows; return it with its note."""
    table = read_table(arrow(a=cells))
    rows = np.arange(len(cells)) if rows is None else np.array(rows)
    return fit_input(table, table.take(rows), "a", categorical)


@pytest.mark.parametrize(
    ("cells", "fill", "varies", "missing"),
    [
        ([1, 2, 9], 2, True, False),
        ([1, 2, None, 9, 10], 5.5, True, True),
        (["1,000", None, "3"], 501.5, True, True),
        ([5, None, 5], 5, False, True),
    ],
)
def test_numbers(cells, fill, varies, missing):
    column, note = learn(cells)
    assert note == ""
    assert (column.fill, column.varies, column.missing) == (fill, varies, missing)


def test_categories():
    column, _ = learn(["b", "a", "b", "a", "b"])
    assert (column.categories, column.fill, column.missing) == (("a", "b"), 1, False)
    column, _ = learn(["b", None, "b"])
    assert (column.categories, column.missing) == (("b",), True)
    assert learn([3, 1, 3], categorical=True)[0].categories == ("1", "3")


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ([None, None], "empty"),
        (["", "NA"], "empty"),
        ([3, 3], "always 3"),
        ([DAY, DAY], "always 2024-01-01"),
        (["x", "x"], "always 'x'"),
        ([True, True], "always 'True'"),
        (["a", "b", "c"], "3 different texts in 3 cells"),
        ([*(f"t{i}" for i in range(39)), "t0"], "39 different texts in 40 cells"),
        (["x", *"xabcdefgh", None], "9 different texts in 10 cells"),
        ([f"t{i}" for i in range(51)] * 2, "51 different texts in 102 cells"),
    ],
)
def test_what_is_left_out(cells, note):
    assert learn(cells) == (None, note)


def test_texts_of_which_some_repeat_are_categories():
    """Fewer than nine in ten of the cells with a text are different."""
    assert len(learn(["x", "x", *"abcdefg", None])[0].categories) == 8


def test_many_categories_are_kept_on_demand():
    assert len(learn([f"t{i}" for i in range(60)], categorical=True)[0].categories) == 60


def test_the_training_rows_alone_tell_the_values():
    column, _ = learn([1, 3, None, 100], rows=[0, 1])
    assert (column.fill, column.missing) == (2, False)
    column, _ = learn(["c", "b", "c", "a", "a", "a"], rows=[0, 1, 2])
    assert (column.categories, column.fill) == (("a", "b", "c"), 2)  # names of all rows
    assert learn([1, 1, 2], rows=[0, 1]) == (None, "always 1")
    assert learn(["a", "a", "b"], rows=[0, 1]) == (None, "always 'a'")


def test_reading_categories():
    def read(cells, unseen="error"):
        return column.read(read_table(arrow(a=cells)), unseen).tolist()

    column, _ = learn(["b", "a", "b"])
    assert read(["a", None, "b"]) == [0, 1, 1]  # the most frequent one
    assert read(["c", "a"], "zeros") == [-1, 0]
    words = ("'bb' in row 1 (from 0) is no category", "(3 such cells)", "wanted 'a', 'b'",
             "unseen='zeros', --unseen zeros")  # fmt: skip
    fault(lambda: read(["a", "bb", "c", "c"]), *words)
    column, _ = learn(["blue", None, "red"])
    assert read(["red", None, "blue"]) == [1, 2, 0]
    fault(lambda: read(["Blue"]), "(did you mean 'blue'?)", "(1 such cell)")


@pytest.mark.parametrize(
    ("cells", "categorical", "task", "classes"),
    [
        ([1.0, 0.0, 1.0], False, "regression", ()),
        ([1, 0, 1], False, "binary", ()),
        ([1, 0, 2], False, "regression", ()),
        ([1, 3, 2, 3, 3, 2], True, "multiclass", ("1", "2", "3")),
        ([True, False, True], False, "binary", ("False", "True")),
        (["yes", "no", None, "no"], False, "binary", ("no", "yes")),
        (["c", "a", "b", "a", "b", "c"], False, "multiclass", ("a", "b", "c")),
        (["1,000.5", "3", None], False, "regression", ()),
    ],
)
def test_targets(cells, categorical, task, classes):
    table = read_table(arrow(a=cells))
    target = fit_target(table, "a", categorical)
    assert (target.task, target.classes) == (task, classes)
    y, present = target.read(table)
    assert present.tolist() == [c is not None for c in cells]
    assert y.dtype == (np.float64 if task == "regression" else np.int64)
    for value, cell in zip(y, cells, strict=True):
        if classes and cell is not None:
            assert classes[value] == str(cell)
    if None in cells:
        assert np.isnan(y[2]) if task == "regression" else y[2] == -1


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([1, 1, None], ["the target 'a' is 1 in every row"]),
        (["x", "x"], ["the target 'a' is 'x' in every row"]),
        ([DAY, DAY], ["the target 'a' is 2024-01-01 in every row"]),
        ([f"t{i}" for i in range(9)], ["9 different texts in 9 rows", "a few classes"]),
        ([f"t{i}" for i in range(51)] * 3, ["51 different texts in 153 rows"]),
    ],
)
def test_unfit_targets(cells, words):
    fault(lambda: fit_target(read_table(arrow(a=cells)), "a", False), *words)


def test_new_rows_with_other_classes():
    labelled = fit_target(read_table(arrow(a=["u", "v", "u"])), "a", False)
    fault(lambda: labelled.read(read_table(arrow(a=["w"]))), "'w' in row 0 (from 0) is no category")
    binary = fit_target(read_table(arrow(a=[0, 1, 1])), "a", False)
    fault(lambda: binary.read(read_table(arrow(a=[2]))), "other values than 0 and 1")


def test_format_value():
    assert format_value(Kind("date"), 0.5) == "1970-01-01T12:00:00"
    assert format_value(Kind("number"), 0.25) == "0.25"
