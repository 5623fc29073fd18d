"""The numbers and dates in texts."""

from __future__ import annotations

import datetime
import decimal
import re

import numpy as np

from dgp_ppl.datasets._messages import WHOLE_MAX

__all__ = [
    "DAY_MICROSECONDS", "MISSING", "canonical", "has_decimal_comma", "is_missing",
    "is_padded", "is_too_long", "parse_date", "parse_number",
]  # fmt: skip

MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "<na>", "nan", "+nan", "-nan", "null", "none", "nil", "?", ".", "-")
)
"""Texts of cells without a value, in lower case."""

DAY_MICROSECONDS = 86_400_000_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_PLAIN = re.compile(r"[+-]?0*(\d*)(\.\d*)?")
_PADDED = re.compile(r"[+-]?0\d")
_PARTS = {"y": r"(?P<y>\d{4})", "m": r"(?P<m>\d{1,2})", "d": r"(?P<d>\d{1,2})"}
_TIME = r"(?:[T ]\s*(?P<time>\d.*))?"
_DATES = {
    order: re.compile(f"{_PARTS[a]}(?P<sep>[{separators}]){_PARTS[b]}(?P=sep){_PARTS[c]}{_TIME}")
    for order, (a, b, c), separators in (
        ("year", "ymd", "-/."), ("day", "dmy", "-/."), ("month", "mdy", "-/"),
    )
}  # fmt: skip


def is_missing(text: str) -> bool:
    """Return whether a text stands for a missing cell: empty, NA, nan, null, ?, ..."""
    return text.lower() in MISSING


def parse_number(text: str) -> float | None:
    """Return the number in a text; NaN if missing; None for other texts.

    Commas may separate thousands, as in ``1,421.48``. A decimal comma is no number: ``0,532``.
    """
    if is_missing(text):
        return np.nan
    if "_" in text:  # a number for Python alone
        return None
    try:
        return float(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return None


def is_too_long(text: str) -> bool:
    """Return whether a number beyond 2^53 is whole, or has digits that float64 loses."""
    match = _PLAIN.fullmatch(text.replace(",", ""))
    if match is None or (len(match[1]) <= 16 and int(match[1] or 0) <= WHOLE_MAX):
        return False
    return not match[2] or decimal.Decimal(match[0]) != decimal.Decimal(float(match[0]))


def is_padded(text: str) -> bool:
    """Return whether a text is a code such as 007, which differs from the number 7."""
    return _PADDED.match(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Return whether a text is a number whose comma cannot separate thousands."""
    return bool(_DECIMAL_COMMA.fullmatch(text)) and not _THOUSANDS.fullmatch(text)


def parse_date(text: str, order: str) -> float | None:
    """Return the days from 1970-01-01 (UTC) to a date; NaN if missing; None for other texts.

    `order` says what dates start with: "year" (2024-03-31), "day" (31/03/2024) or "month".
    """
    if is_missing(text):
        return np.nan
    match = _DATES[order].fullmatch(text)
    if match is None:
        return None
    try:
        date = datetime.date(*(int(match[part]) for part in "ymd"))
        time = datetime.time.fromisoformat(match["time"] or "00:00")
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    since = datetime.datetime.combine(date, time) - _EPOCH
    return since / datetime.timedelta(microseconds=1) / DAY_MICROSECONDS


def canonical(number: float) -> str:
    """Return the text of a number as a category: whole numbers have no decimal point."""
    return str(int(number)) if number == int(number) else repr(float(number))
