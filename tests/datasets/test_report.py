"""What a report says was done, and its warnings."""

import warnings

import numpy as np
import pyarrow as pa
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
        ("missing", "rooms: 1 cell -> "),
        ("missing", "sold: 1 cell -> 2024-01-", "an input that marks them"),
        ("left out", "country: always 'NL'"),
        ("left out", "owner: 23 different texts in 23 cells"),
        ("left out", "1 row without a target"),
        ("target", "price (regression)"),
    ):
        assert any(all(word in line for word in words) for line in lines), words
    report = str(fitted(arrow(a=[5, None, 5], y=["u", "v", "u"]), "y").report)
    assert "a: 1 cell, replaced by an input that marks them" in report
    assert report.endswith("y (binary: u, v)")


def warned(cells, **options):
    """Return the warnings about a column beside a column of numbers, which are Python's too."""
    numbers = np.arange(len(cells)) / 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = arrow(a=list(cells), b=numbers, y=numbers)
        report = Preprocessor.fit(table, "y", **options).report
    assert [str(w.message) for w in caught] == [f"pyarrow Table: {t}" for t in report.warnings]
    return report.warnings


def test_warnings():
    """Of whole numbers that may be an identifier, of unclear dates, of text that is left out."""
    identifier = "column 'a' has {} different whole numbers in {} cells"
    for cells, words in (
        (range(100, 120), identifier.format(20, 20)),
        ([f"{i},000" for i in range(1, 21)], identifier.format(20, 20)),
        ([*range(20), 0], identifier.format(20, 21)),
        ([*range(19), None], identifier.format(19, 19)),
        (["01/02/2024", "03/02/2024", "05/06/2023"], "01/02/2024 are read as month/day/year"),
        (["t1", "t2", "t3"], "'a' is left out, as it has 3 different texts"),
        (
            ["red", "1", "red", "1"],
            "'a': 2 of 4 cells are numbers, such as '1' in row 1 (from 0), "
            "and others cannot be read so, such as 'red' in row 0 (from 0)",
        ),
        (["soon", None, "soon", "2024-01-31"], "1 of 3 cells are dates, such as '2024-01-31'"),
        (["31/01/2024", "2024-01-31"] * 2, "2 of 4 cells are dates, such as '2024-01-31' in row 1"),
    ):
        (text,) = warned(cells)
        assert words in text
    for cells in (
        range(9), [*range(18), 0, 1], [i / 3 for i in range(20)], ["01/02/2024", "13/02/2024"],
        ["01.02.2024", "03.02.2024"], ["red", "red", "red", "red", "1"],
    ):  # fmt: skip
        assert warned(cells) == ()
    mixed = ["1", "red"] * 2
    assert warned(mixed, categorical="a") == warned(mixed, drop="a") == ()
    # The kind and the warning are of the rows with a target.
    dates = arrow(a=["03/04/2024", "05/06/2024", "31/03/2024"], y=[1, 2.5, None])
    assert "03/04/2024 are read as month/day/year" in str(fitted(dates, "y").report)
    assert warned(["t1", "t2", "t3"], categorical="a") == warned(["t1", "t2"], drop="a") == ()
