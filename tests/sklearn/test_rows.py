"""Predictions of rows in chunks."""

import numpy as np
import pytest
from support.estimators import fitted, run

from dgp_ppl.sklearn import DeepGPRegressor


def test_chunks_change_nothing(monkeypatch):
    rows, gp = run("step"), fitted("step")
    x = np.concatenate([rows.x, rows.x_test])
    mean, std = gp.predict(x, return_std=True)
    monkeypatch.setattr("dgp_ppl.sklearn._estimator._MAX_PASSES", 4 * 32)
    found, spread = gp.predict(x, return_std=True)
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(spread, std, rtol=1e-5)


@pytest.mark.slow
def test_restarts_are_mixed():
    rows, x = run("step"), run("step").x_test
    options = {"steps": 4, "inducing": 4, "samples": 4, "random_state": 3, "restarts": 2}
    gp = DeepGPRegressor(**options).fit(rows.x, rows.y)
    assert len(gp.fitted_.fits) == 2
    np.testing.assert_array_equal(gp.params_["noise"], fitted("step").params_["noise"])
    alone = gp.prediction(x[:1])
    assert alone.num_samples == 8
    np.testing.assert_allclose(gp.predict(x)[0], alone.mean[0], atol=1e-5)
