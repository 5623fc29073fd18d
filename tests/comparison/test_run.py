"""One method on one split: failures."""

import json

import numpy as np
import pytest
from support.comparisons import TINY

import dgp_ppl
from dgp_ppl import NonFiniteLossError
from dgp_ppl.comparison import METHODS, Setting
from dgp_ppl.comparison._fit_method import fit_method


def test_a_failed_fit_is_a_row_of_nulls(tmp_path, monkeypatch):
    def fail(task):
        raise NonFiniteLossError("not finite at step 0", step=0, site="y", result=None)

    monkeypatch.setitem(METHODS, "dsvi", fail)
    comparison = dgp_ppl.compare("step", ["dsvi"], splits=1, out=tmp_path, **TINY)
    row = json.loads((tmp_path / "results.json").read_text())["splits"][0]
    assert row["rmse"] is None
    assert "not finite at step" in row["error"]
    assert comparison.summary == []
    x = np.linspace(-1, 1, 20)[:, None]
    with pytest.raises(NonFiniteLossError, match="not finite at step"):
        fit_method("dsvi", x, x[:, 0], Setting(), seed=0, split=0)


@pytest.mark.slow
def test_a_sampler_that_fails_is_a_row_of_nulls():
    outcome = dgp_ppl.compare("step", ("sghmc",), splits=1, **(TINY | {"learning_rate": 1e30}))
    (row,) = outcome.splits
    assert "not finite" in row["error"]
    assert row["rmse"] is None
