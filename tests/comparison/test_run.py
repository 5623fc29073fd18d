"""One method on one split: failures."""

import json

import numpy as np
import pytest
from support.comparisons import TINY

import dgp_ppl
from dgp_ppl import NonFiniteLossError
from dgp_ppl.comparison import Setting
from dgp_ppl.comparison._fit_method import fit_method


def test_a_failed_fit_is_a_row_of_nulls(tmp_path):
    settings = TINY | {"learning_rate": 1e30, "depth": 1}
    comparison = dgp_ppl.compare("step", ["dsvi"], splits=1, out=tmp_path, **settings)
    row = json.loads((tmp_path / "results.json").read_text())["splits"][0]
    assert row["rmse"] is None
    assert "not finite at step" in row["error"]
    assert comparison.summary == []
    x = np.linspace(-1, 1, 20)[:, None]
    options = {"steps": 4, "inducing": 4, "depth": 1, "learning_rate": 1e30}
    with pytest.raises(NonFiniteLossError, match="not finite at step"):
        fit_method("dsvi", x, x[:, 0], Setting(**options), seed=0, split=0)


def test_one_method_is_fitted_as_compare_does():
    (run,) = dgp_ppl.compare("step", ["sgpr"], splits=[1], seed=3, **TINY).fits.values()
    setting = Setting(steps=TINY["steps"], inducing=TINY["inducing"])
    found = fit_method("sgpr", run.x, run.y, setting, seed=3, split=1)
    again = found.predict(run.x_test, TINY["samples"])
    np.testing.assert_array_equal(again.mean, run.test.mean)
    np.testing.assert_array_equal(again.var, run.test.var)
    assert found.fits[0].elbo_per_datum == run.fitted.elbo_per_datum


@pytest.mark.slow
def test_a_sampler_that_fails_is_a_row_of_nulls():
    outcome = dgp_ppl.compare("step", ("sghmc",), splits=1, **(TINY | {"learning_rate": 1e30}))
    (row,) = outcome.splits
    assert "not finite" in row["error"]
    assert row["rmse"] is None
