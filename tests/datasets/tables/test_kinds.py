import datetime

import numpy as np
import pyarrow as pa
import pytest
from support.tables import arrow, fault

from dgp_ppl._errors import DataError
from dgp_ppl.datasets import read_table
from dgp_ppl.datasets.tables._kinds import Kind, infer, labels, numbers


def table(cells):
    return read_table(arrow(a=cells))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2], Kind("number")),
        ([datetime.date(2024, 1, 1)], Kind("date")),
        ([True, False], Kind("category")),
        (["1,421.48", "7", None], Kind("number")),
        (["", "NA"], Kind("number")),
        (["2024-01-31", "2024-02-01", None], Kind("date")),
        (["31/01/2024", "01/02/2024"], Kind("date", "day")),
        (["01/31/2024", "01/02/2024"], Kind("date", "month")),
        (["01/02/2024", "03/02/2024"], Kind("date", "month")),
        (["01.02.2024", "03.02.2024"], Kind("date", "day")),
        (["red", "blue", "1"], Kind("category")),
        (["1stFlr", "2ndFlr", "3"], Kind("category")),
    ],
)
def test_what_a_column_holds(cells, kind):
    assert infer(table(cells), "a") == kind


def test_categories_on_demand():
    assert infer(table([1, 2]), "a", categorical=True) == Kind("category", numeric=True)
    assert infer(table(["1,000", "2"]), "a", categorical=True) == Kind("category", numeric=True)
    assert infer(table(["1", "2a", "3"]), "a", categorical=True) == Kind("category")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([1.5, "x"] * 2 + ["7", "8"], ["'x'", "row 1 (from 0)", "is no number (2 such cells)"]),
        (["1", "2", "3", "red", "blue"], ["'red' in row 3", "2 such cells, and 'blue'", "--drop"]),
        (["2024-01-31", "2024-02-31", "2024-03-31"], ["'2024-02-31' in row 1", "is no date"]),
        (["3,14", "2,71"], ["'3,14' in row 0", "has a decimal comma", "decimal point"]),
        (["0,532", "1,421"], ["'0,532'", "decimal comma"]),
        ([[1], [2]], ["'a' is of type 'list<", "leave it out"]),
    ],
)
def test_columns_that_are_neither_one_thing_nor_another(cells, words):
    if any(isinstance(c, float) for c in cells):
        cells = [None if c is None else str(c) for c in cells]
    fault(lambda: infer(table(cells), "a"), "column 'a'", *words)
    if "type" not in words[0]:
        assert infer(table(cells), "a", categorical=True).name == "category"


def test_dates_are_no_categories():
    cells = [datetime.date(2024, 1, 1)]
    fault(lambda: infer(table(cells), "a", categorical=True), "'a', a column of dates")


def test_numbers_and_dates():
    number, date = Kind("number"), Kind("date", "day")
    np.testing.assert_array_equal(
        numbers(table(["1,000.5", None, "-2"]), "a", number), [1000.5, np.nan, -2]
    )
    np.testing.assert_array_equal(numbers(table([3, None]), "a", number), [3, np.nan])
    assert numbers(table(["02/01/1970"]), "a", date) == [1]
    assert numbers(table([datetime.date(1970, 1, 2)]), "a", date) == [1]


@pytest.mark.parametrize(
    ("cells", "kind", "words"),
    [
        (["1", "red"], "number", ["'red' in row 1", "is no number", "as in the training data"]),
        (["1970-01-01", "red"], "date", ["'red' in row 1", "is no date"]),
        ([datetime.date(2024, 1, 1)], "number", ["holds dates, wanted numbers"]),
        ([1.5], "date", ["holds no dates, wanted dates"]),
        ([[1]], "number", ["holds type 'list<"]),
        ([1, np.inf], "number", ["inf in row 1 (from 0) is infinite"]),
        (["1,000", "-inf"], "number", ["-inf in row 1 (from 0) is infinite"]),
        ([1e39, 1], "number", ["1e+39 in row 0", "beyond the range of float32"]),
        ([1, 2**60], "number", ["row 1", "2^53", "identifier", "--drop"]),
        (["7", "9,007,199,254,740,993"], "number", ["row 1", "2^53"]),
    ],
)
def test_bad_cells(cells, kind, words):
    fault(lambda: numbers(table(cells), "a", Kind(kind), fitting=True), "column 'a'", *words)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "red"], Kind("number")),
        (["1970-01-01", "red"], Kind("date")),
        ([1, np.inf], Kind("number")),
        (["1,000", "-inf"], Kind("number")),
        ([1e39, 1], Kind("number")),
        ([1, 2**60], Kind("number")),
        ([1, np.inf], Kind("category", numeric=True)),
    ],
)
def test_new_rows_get_advice_that_predictions_can_follow(cells, kind):
    """The column of a fit cannot be left out any more, nor be taken as categories."""
    read = labels if kind.name == "category" else numbers
    with pytest.raises(DataError, match=r"correct the cells, or leave these rows out$"):
        read(table(cells), "a", kind)


@pytest.mark.parametrize(
    "cells",
    [
        pa.nulls(2), pa.nulls(2, pa.float64()), pa.nulls(2, pa.date32()), pa.nulls(2, pa.string()),
        pa.nulls(2, pa.timestamp("us")), pa.nulls(2, pa.int64()),
    ],
    ids=lambda cells: str(cells.type),
)  # fmt: skip
def test_a_column_without_cells_may_have_any_type(cells):
    for name in ("number", "date"):
        assert np.isnan(numbers(table(cells), "a", Kind(name))).all()
    texts, codes = labels(table(cells), "a", Kind("category"))
    assert (texts, codes.tolist()) == ((), [-1, -1])


def test_labels():
    def found(cells, **options):
        texts, codes = labels(table(cells), "a", Kind("category", **options))
        return [None if c < 0 else texts[c] for c in codes], texts

    assert found(["red", None, "blue", "red"]) == (
        ["red", None, "blue", "red"], ("blue", "red"),
    )  # fmt: skip
    assert found([True, False])[1] == found(["TRUE", "false"])[1] == ("False", "True")
    assert found(["3.0", "007", "1,000"], numeric=True)[0] == ["3", "7", "1000"]
    assert found(["3.0", "007", "x"])[0] == ["3.0", "007", "x"]
    assert found([3, 1, None])[0] == found([3.0, 1.0, None])[0] == ["3", "1", None]
    assert found([0.5])[1] == ("0.5",)
    dates = [datetime.date(2024, 1, 1)]
    fault(lambda: labels(table(dates), "a", Kind("category")), "'a' holds no text")
