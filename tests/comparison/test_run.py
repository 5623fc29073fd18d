"""One method on one split: failures."""

import json

import numpy as np
import pytest
from support.comparisons import TINY
from support.fits import SHALLOW, X, Y, Z, shallow

import dgp_ppl
from dgp_ppl import NonFiniteLossError
from dgp_ppl.comparison import Fitted, Run, Setting, fit_method
from dgp_ppl.comparison._fit_method import MethodFit
from dgp_ppl.datasets import load
from dgp_ppl.models import svgp


def test_a_failed_fit_is_a_row_of_nulls(tmp_path):
    settings = TINY | {"learning_rate": 1e30, "depth": 1}
    comparison = dgp_ppl.compare("step", ["dsvi"], splits=1, out=tmp_path, **settings)
    row = json.loads((tmp_path / "results.json").read_text())["splits"][0]
    assert row["rmse"] is None
    assert "not finite at step" in row["error"]
    assert comparison.summary == []
    x = np.linspace(-1, 1, 20)[:, None]
    with pytest.raises(NonFiniteLossError, match="not finite at step"):
        fit_method("dsvi", x, x[:, 0], Setting(steps=4, inducing=4, depth=1, learning_rate=1e30))
    with pytest.raises(ValueError, match="fit_method: the method 'svgp' is now dsvi with depth=1"):
        fit_method("svgp", x, x[:, 0], Setting())


def test_one_method_is_fitted_as_compare_does():
    (run,) = dgp_ppl.compare("step", ["sgpr"], splits=[1], seed=3, **TINY).fits.values()
    setting = Setting(steps=TINY["steps"], inducing=TINY["inducing"])
    found = fit_method("sgpr", run.x, run.y, setting, seed=3, split=1)
    again = found.predict(run.x_test, TINY["samples"])
    np.testing.assert_array_equal(again.mean, run.test.mean)
    np.testing.assert_array_equal(again.var, run.test.var)
    assert found.fits[0].elbo_per_datum == run.fitted.elbo_per_datum


def test_runs_and_fits_of_a_method_are_described_in_a_few_lines():
    fitted = Fitted(svgp, SHALLOW, {"z": Z}, shallow(4))
    scale = dgp_ppl.Standardizer.fit(X, Y)
    row = {"method": "dsvi", "split": 0, "rmse": 0.123456, "crps": None, "seconds": 2.0}
    data = load("robot_arm")
    x, y = data.x, data.y
    run = Run(fitted, scale, None, x[10:], y[10:], x[:10], y[:10], data, {"seed": 0}, row)
    lines = repr(run).splitlines()
    assert lines[:2] == [
        f"Run: dsvi on robot_arm (regression of {data.y_name}), 1,990 training and 10 "
        "held-out rows of 6 inputs",
        "  rmse 0.1235, seconds 2",
    ]
    assert "\n".join(line[2:] for line in lines[2:]) == repr(fitted)
    found = repr(MethodFit((fitted, fitted), scale, 3, errors=("loss is NaN",), seconds=9.0))
    first = "MethodFit: 2 fits, of which the first is below, with seed 3 in 9 s, 1 failed"
    assert found.startswith(f"{first}: loss is NaN\n  Fitted: svgp with MeanField, 4 steps")
    assert max(len(repr(run)), len(found)) < 600


@pytest.mark.slow
def test_a_sampler_that_fails_is_a_row_of_nulls():
    outcome = dgp_ppl.compare("step", ("sghmc",), splits=1, **(TINY | {"learning_rate": 1e30}))
    (row,) = outcome.splits
    assert "not finite" in row["error"]
    assert row["rmse"] is None
