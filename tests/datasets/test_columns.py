"""What a `Preprocessor` takes the columns of a table and its target for."""

import datetime
from decimal import Decimal

import numpy as np
import pytest
from support.data_samples import refused
from support.tables import arrow, fitted

from dgp_ppl.datasets._columns import Kind, infer, parse_date, parse_number
from dgp_ppl.datasets._read import read_table

DAY = datetime.date(2024, 1, 1)
ROWS = np.arange(100) / 2


def learn(cells, rows=None, **options):
    """Return what is learnt of a column from some of its rows, beside a column of numbers."""
    made = fitted(arrow(a=cells, other=ROWS[: len(cells)]), None, rows=rows, **options)
    columns = [c for c in made.columns if c.name == "a"]
    notes = [text for name, text in made.report.steps if name == "left out"]
    return columns[0] if columns else notes[0].removeprefix("a: ")


def inputs(cells, new, **options):
    """Return the inputs of new cells of a column."""
    made = fitted(arrow(a=cells), None, **options)
    return made.inputs(arrow(a=new)).tolist()


def test_numbers_in_texts():
    for text, number in (
        ("1,421.48", 1421.48), ("1,234,567", 1234567), ("-12,000.5", -12000.5), ("+1.5e-1", 0.15),
        ("007", 7), ("inf", np.inf), ("1_000", None), ("0,532", None), ("3,14", None),
        ("1,42,000", None), ("0x10", None), ("red", None), ("1 421", None),
    ):  # fmt: skip
        assert parse_number(text) == number, text
    for text in ("", "NA", "n/a", "NaN", "null", "None", "?", "-", "<NA>"):
        assert np.isnan(parse_number(text)), text
        assert np.isnan(parse_date(text, "year")), text


def test_dates_in_texts():
    for text, order, date in (
        ("2024-03-31", "year", "2024-03-31"),
        ("1969/12/31", "year", "1969-12-31"),
        ("2024-03-31 12:30:15.5", "year", "2024-03-31T12:30:15.5"),
        ("2024-03-31T12:30Z", "year", "2024-03-31T12:30"),
        ("2024-03-31 00:30:00+02:00", "year", "2024-03-30T22:30"),
        ("31/03/2024", "day", "2024-03-31"),
        ("31.3.2024 08:00", "day", "2024-03-31T08:00"),
        ("03-31-2024", "month", "2024-03-31"),
        ("31/03/2024", "month", None),
        ("3.31.2024", "month", None),
        ("31/03-2024", "day", None),
        ("2024-02-30", "year", None),
        ("2024-03-31 later", "year", None),
        ("20240331", "year", None),
    ):
        wanted = date and np.datetime64(date, "us").astype(int) / 86_400_000_000
        assert parse_date(text, order) == wanted, text


def test_kinds_of_columns():
    for cells, kind in (
        ([1, 2], Kind("number")),
        ([DAY], Kind("date")),
        ([True, False], Kind("category")),
        (["1,421.48", "7", None], Kind("number")),
        (["2024-01-31", "2024-02-01", None], Kind("date")),
        (["31/01/2024", "01/02/2024"], Kind("date", "day")),
        (["01/31/2024", "01/02/2024"], Kind("date", "month")),
        (["01/02/2024", "03/02/2024"], Kind("date", "month")),
        (["01.02.2024", "03.02.2024"], Kind("date", "day")),
        (["red", "blue", "green", "red", "1"], Kind("category")),
        (["1stFlr", "2ndFlr"], Kind("category")),
    ):
        assert infer(read_table(arrow(a=cells)), "a") == (kind, ""), cells
    for cells, numeric in (
        ([1, 2], True),
        (["1,000", "2"], True),
        (["1", "2a"], False),
        (["00501", "501"], False),
    ):
        assert learn(cells, categorical="a").kind == Kind("category", numeric=numeric), cells


def test_columns_that_are_neither_one_thing_nor_another():
    refused(
        *[
            (lambda cells=cells: learn(cells), "column 'a'", *words)
            for cells, *words in (
                (["1", "2", "3", "red", "blue"], "'red' in row 3", "2 such cells, and 'blue'"),
                (["1", "2", "red"], "is no number (1 such", "--drop", "--categorical"),
                (["2024-01-31", "2024-02-31", "2024-03-31"], "'2024-02-31' in row 1", "is no date"),
                (["3,14", "2,71"], "'3,14' in row 0", "has a decimal comma", "decimal point"),
                (["0,532", "1,421"], "'0,532'", "decimal comma"),
                ([[1], [2]], "'a' holds values of type 'list<", "leave it out"),
                ([1, np.inf], "inf in row 1 (from 0) is infinite", "--drop"),
                ([1e39, 1], "1e+39 in row 0", "beyond the range of float32"),
                (["1,000", "9,007,199,254,740,993"], "in row 1", "beyond 2^53"),
                ([Decimal("9007199254740993.25"), Decimal(1)], "'9007199254740993.25' in row 0"),
            )
        ],
        (lambda: learn([DAY], categorical="a"), "'a' holds dates, wanted text"),
    )
    assert learn(["3,14", "2,71", "3,14"], categorical="a").categories == ("2,71", "3,14")


def test_what_is_learnt():
    """The value for missing cells, what varies or is missing in training rows; categories."""
    for cells, *wanted in (
        ([1, 2, None, 9, 10], 5.5, True, True),
        (["1,000", None, "3"], 501.5, True, True),
        ([5, None, 5], 5, False, True),
    ):
        column = learn(cells)
        assert [column.fill, column.varies, column.missing] == wanted, cells
    column = learn([1, 3, None, 100], rows=[0, 1])
    assert (column.fill, column.missing) == (2, False)
    column = learn(["b", "a", "b", None, "b"])
    assert (column.categories, column.fill, column.missing) == (("a", "b"), 1, True)
    assert learn([3.0, 1.0, 0.1], categorical="a").categories == ("0.1", "1", "3")
    assert learn(["true", "FALSE", "yes", "true"]).categories == ("False", "True", "yes")
    column = learn(["c", "b", "c", "a", "a", "a"], rows=[0, 1, 2])
    assert (column.categories, column.fill) == (("a", "b", "c"), 2)  # names of all rows
    # Fewer than nine in ten of the cells with a text differ.
    assert len(learn(["x", "x", *"abcdefg", None]).categories) == 8
    assert len(learn([f"t{i}" for i in range(60)], categorical="a").categories) == 60


def test_what_is_left_out():
    for cells, note in (
        ([None, None], "empty"),
        ([3, 3], "always 3"),
        ([DAY, DAY], "always 2024-01-01"),
        ([True, True], "always 'True'"),
        (["x", *"xabcdefgh", None], "9 different texts in 10 cells"),
        ([f"t{i}" for i in range(51)] + ["t0"] * 49, "51 different texts in 100 cells"),
    ):
        assert learn(cells) == note
    assert learn([1, 1, 2], rows=[0, 1]) == "always 1"
    assert learn(["a", "a", "b"], rows=[0, 1]) == "always 'a'"


def test_new_rows():
    with pytest.warns(UserWarning, match=r"'a' has 1 missing cell, the first in row 1 .* category"):
        assert inputs(["b", "a", "b"], ["a", None, "b"]) == [[0], [1], [1]]
    with pytest.warns(UserWarning, match=r"has 2 missing cells, .*: their median stands for it"):
        assert inputs([1, 2, 3], [None, 1, None]) == [[2], [1], [2]]
    three = ["blue", None, "red"]
    assert inputs(three, ["red", None]) == [[0, 1, 0], [0, 0, 1]]
    assert inputs([1, 2], ["1,000.5", "-2"]) == [[1000.5], [-2]]
    assert inputs([DAY, DAY - datetime.timedelta(3)], ["1970-01-02"]) == [[1]]
    assert inputs(["01/02/2024", "31/01/2024"], [datetime.date(1970, 1, 2), None])[0] == [1]
    numbers, dates = [1, 2], ["2024-01-01", "2024-01-02"]
    refused(
        (lambda: inputs("bab", ["a", "bb", "c", "c"]), "'bb' in row 1 (from 0) is no category",
         "(3 such cells, and 'c')", "wanted 'a', 'b'", "unseen='zeros', --unseen zeros"),
        (lambda: inputs(three, ["Blue"]), "(did you mean 'blue'?)", "(1 such cell)"),
        (lambda: inputs(numbers, ["1", "red"]), "'red' in row 1", "is no number", "or leave these"),
        (lambda: inputs(dates, ["1970-01-01", "red"]), "'red' in row 1", "is no date"),
        (lambda: inputs(numbers, [DAY]), "holds dates, wanted numbers"),
        (lambda: inputs(dates, [1.5]), "holds numbers, wanted dates"),
        (lambda: inputs(numbers, [[1]]), "holds values of type 'list<"),
        (lambda: inputs(three, [DAY]), "holds dates, wanted text"),
        (lambda: inputs([1, 2, 1], [np.inf], categorical="a"), "inf in row 0", "infinite"),
    )  # fmt: skip


def test_targets():
    for cells, categorical, task, classes in (
        ([1.0, 0.0, 1.0], (), "regression", ()),
        ([1, 0, 1], (), "binary", ()),
        ([1.0, None, 0.0], (), "binary", ()),  # as pandas stores whole numbers
        ([0.5, None, 1.0], (), "regression", ()),
        ([1, 0, 2], (), "regression", ()),
        ([1, 3, 2, 3, 3, 2], "y", "multiclass", ("1", "2", "3")),
        ([True, False, True], (), "binary", ("False", "True")),
        (["yes", "no", None, "no"], (), "binary", ("no", "yes")),
        (["1,000.5", "3", None], (), "regression", ()),
    ):
        table = arrow(y=cells, other=ROWS[: len(cells)])
        made = fitted(table, "y", categorical=categorical)
        assert (made.task, made.target.classes) == (task, classes)
        y, present = made.targets(table)
        assert present.tolist() == [c is not None for c in cells]
        assert y.dtype == (np.float64 if task == "regression" else np.int64)
        if classes:
            wanted = [-1 if c is None else classes.index(str(c)) for c in cells]
            assert y.tolist() == wanted
    assert np.isnan(y[2])


def test_targets_that_are_refused():
    def fit(cells):
        return fitted(arrow(y=cells, other=np.arange(len(cells)) / 2), "y")

    binary, labelled = fit([0, 1, 1]), fit(["u", "v", "u"])
    refused(
        (lambda: fit([1, 1, None]), "the target 'y' is 1 in every row"),
        (lambda: fit([DAY, DAY]), "the target 'y' is 2024-01-01 in every row"),
        (lambda: fit([f"t{i}" for i in range(9)]), "9 different texts in 9 rows", "a few classes"),
        (lambda: fit([f"t{i}" for i in range(51)] * 3), "51 different texts in 153 rows"),
        (lambda: labelled.targets(arrow(y=["w"])), "'w' in row 0 (from 0) is no category"),
        (lambda: binary.targets(arrow(y=[2])), "2.0 in row 0 (from 0) is neither 0 nor 1"),
    )
