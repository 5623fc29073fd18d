"""Metrics of a comparison: their summary, and their form in tables."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dgp_ppl.comparison._metrics import METRICS, format_summary, predictive_metrics, summarise
from dgp_ppl.comparison._rivals import RivalFit


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


def test_unseen_rows_have_metrics_of_their_own():
    y, repeated = np.array([1.0, 2.0, 4.0]), np.array([True, False, False])
    fit = RivalFit(norm(np.zeros(3), 1.0), 0.0, 1.0, 0.0, "its own")
    found = predictive_metrics("regression", fit, y, repeated)
    assert found["repeated"] == 1
    assert found["rmse_of_unseen"] == pytest.approx(np.sqrt(10))
    assert found["log_density_of_unseen"] == pytest.approx(norm.logpdf(y[1:]).mean())
    assert "rmse_of_unseen" not in predictive_metrics("regression", fit, y, y > 0)
    fit = RivalFit(np.array([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7]]), 0.0, 1.0, 0.0, "its own")
    found = predictive_metrics("binary", fit, np.array([0, 0, 1]), repeated)
    assert found["accuracy_of_unseen"] == 0.5
    assert found["log_loss_of_unseen"] == pytest.approx(-np.log([0.4, 0.7]).mean())


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
