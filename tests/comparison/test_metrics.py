"""Metrics of a comparison: their summary, and their form in tables."""

import math

import numpy as np
import pytest

from dgp_ppl.comparison._metrics import METRICS, format_summary, summarise


def test_failed_fits_and_missing_values_are_left_out_of_the_summary():
    row = dict.fromkeys(METRICS["regression"], 1.0) | {"ess": None}
    rows = [
        {"method": "a", **row, "rmse": 1.0, "seconds": None},
        {"method": "a", **row, "rmse": 3.0},
        {"method": "a", **row, "rmse": None, "error": "not finite"},
        {"method": "b", **row, "error": "not finite"},
    ]
    (stuck,) = summarise([rows[0] | {"ess": "stuck"}, rows[1] | {"ess": 7.0}], ["a"], "regression")
    assert format_summary("ess", stuck["ess"]) == "stuck"
    (found,) = summarise(rows, ["a", "b"], "regression")
    assert found["method"] == "a"
    assert found["rmse"] == {"mean": 2.0, "se": pytest.approx(np.std([1, 3], ddof=1) / np.sqrt(2))}
    assert found["ess"] == {"mean": None, "se": None}
    assert found["seconds"]["mean"] == 1.0


def test_a_mean_has_the_decimals_of_its_standard_error():
    for metric, mean, se, text in (
        ("rmse", 0.12345, 0.0123, "0.123 ±0.012"),
        ("rmse", 1234.5, 120.0, "1234 ±120"),
        ("rmse", 0.5, 1e-7, "0.5 ±1e-07"),
        ("rmse", 0.123456, math.nan, "0.1235"),
        ("rmse", 0.123456, 0.0, "0.1235"),
        ("rmse", None, None, ""),
        ("seconds", 12.6, 0.5, "13"),
    ):
        assert format_summary(metric, {"mean": mean, "se": se}) == text
