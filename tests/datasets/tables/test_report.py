import warnings

import numpy as np
import pyarrow as pa
import pytest
from support.tables import arrow, fitted, houses

from dgp_ppl.datasets import Preprocessor


def test_a_report_says_what_was_done():
    report = fitted(pa.table(houses())).report
    lines = str(report).splitlines()
    assert repr(report) == str(report)
    assert lines[0] == "pyarrow Table: 23 training rows, 9 columns -> 11 inputs"
    for words in (
        ("numbers", "id, area, rooms"),
        ("dates", "sold (days since 1970-01-01)"),
        ("categories", "colour: blue, green, red, and missing"),
        ("categories", "garage: False, True"),
        ("missing", "rooms: 1 cell -> "),
        ("missing", "sold: 1 cell -> 2024-01-", "an input that marks them"),
        ("left out", "country: always 'NL'"),
        ("left out", "owner: 23 different texts in 23 cells"),
        ("left out", "1 row without a target"),
        ("target", "price (regression)"),
    ):
        assert any(all(word in line for word in words) for line in lines), words


def warned(cells, **options):
    """Return the warnings about a column."""
    table = arrow(a=cells, y=np.arange(len(cells)) / 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = Preprocessor.fit(table, "y", **options).report
    assert [str(w.message) for w in caught] == [f"pyarrow Table: {t}" for t in report.warnings]
    return report.warnings


def test_different_whole_numbers_may_be_an_identifier():
    for cells, different, count in (
        (range(100, 120), 20, 20),
        ([float(i) for i in range(20)], 20, 20),
        ([f"{i},000" for i in range(1, 21)], 20, 20),
        ([*range(20), 0], 20, 21),
        ([*range(19), None], 19, 19),
        ([0.5, *range(20)], 20, 21),
    ):
        (text,) = warned(list(cells))
        assert f"column 'a' has {different} different whole numbers in {count} cells" in text
        assert "--drop" in text
    for cells in (range(9), [*range(18), 0, 1], [i / 3 for i in range(20)], [*range(9), None]):
        assert warned(list(cells)) == ()


def test_day_and_month_that_could_be_exchanged():
    (text,) = warned(["01/02/2024", "03/02/2024", "05/06/2023"])
    assert "01/02/2024 are read as month/day/year" in text
    assert warned(["01/02/2024", "13/02/2024", "05/06/2023"]) == ()
    assert warned(["01.02.2024", "03.02.2024", "05.06.2023"]) == ()


def test_text_that_is_left_out():
    table = arrow(a=[f"t{i}" for i in range(4)], b=[1.5, 2, 3, 4], y=[1.0, 2, 3, 4])
    with pytest.warns(UserWarning, match="'a' is left out, as it has 4 different texts"):
        Preprocessor.fit(table, "y")
    assert fitted(table, "y", categorical="a").report.warnings == ()
    assert fitted(table, "y", drop="a").report.warnings == ()


def test_a_mark_instead_of_a_constant():
    report = fitted(arrow(a=[5, None, 5], y=[1, 2, 3]), "y").report
    assert "a: 1 cell, replaced by an input that marks them" in str(report)
    target = fitted(arrow(a=[1, 2, 3], y=["u", "v", "u"]), "y").report
    assert str(target).endswith("y (binary: u, v)")
