import numpy as np
import pytest

from dgp_ppl.datasets.tables._cells import (
    canonical,
    has_decimal_comma,
    is_missing,
    is_too_long,
    parse_date,
    parse_number,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,421.48", 1421.48),
        ("1,234,567", 1234567),
        ("-12,000.5", -12000.5),
        ("+1.5e-1", 0.15),
        ("007", 7),
        ("inf", np.inf),
        ("1_000", None),
        ("0,532", None),
        ("3,14", None),
        ("1,42,000", None),
        ("12,3456", None),
        ("0x10", None),
        ("red", None),
        ("1 421", None),
    ],
)
def test_numbers(text, number):
    assert parse_number(text) == number
    assert is_missing(text) is False


@pytest.mark.parametrize("text", ["", "NA", "n/a", "NaN", "null", "None", "?", "-", "<NA>"])
def test_missing_cells(text):
    assert is_missing(text)
    assert np.isnan(parse_number(text))
    assert np.isnan(parse_date(text, "year"))


@pytest.mark.parametrize(
    ("text", "order", "date"),
    [
        ("2024-03-31", "year", "2024-03-31"),
        ("2024/3/1", "year", "2024-03-01"),
        ("1969-12-31", "year", "1969-12-31"),
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
        ("2024-03-31 25:00", "year", None),
        ("20240331", "year", None),
    ],
)
def test_dates(text, order, date):
    found = parse_date(text, order)
    if date is None:
        assert found is None
    else:
        assert found == np.datetime64(date, "us").astype(int) / 86_400_000_000


def test_whole_numbers_that_float64_cannot_hold():
    assert not is_too_long(str(2**53))
    assert not is_too_long("0" * 40 + "7")
    assert not is_too_long("1.5")
    for text in (str(2**53 + 1), f"-{2**64}", "9" * 6000, "9,007,199,254,740,993"):
        assert is_too_long(text)


def test_decimal_commas_and_numbers_as_categories():
    assert [has_decimal_comma(t) for t in ("3,14", "0,532", "1,421", "3.14", "red")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert [canonical(v) for v in (3.0, -2.0, 0.1)] == ["3", "-2", "0.1"]
