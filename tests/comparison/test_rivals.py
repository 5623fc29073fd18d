"""Estimators of other packages in `compare`, on its splits and in its scores."""

import dataclasses
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dgp_ppl
from dgp_ppl import datasets, metrics
from dgp_ppl.comparison._rivals import OF_ERRORS, _predicted, _Quantiles, _tenth, identity
from dgp_ppl.standardize import Standardizer

ONE = {"splits": 1, "progress": False}


class Distribution(BaseEstimator):
    fit = lambda self, x, y: self  # noqa: E731
    pred_dist = lambda self, x: stats.norm(np.full(len(x), 2.0), 3.0)  # noqa: E731


class Quantiles(BaseEstimator):
    fit = lambda self, x, y: self  # noqa: E731

    def predict(self, x, quantiles):
        return np.tile(stats.norm.ppf(quantiles, 2, 3)[::-1], (len(x), 1))


class Stops(BaseEstimator):
    def fit(self, x, y, eval_set):
        ((_, targets),) = eval_set
        Stops.seen = len(y), len(targets)
        return self

    def predict(self, x):
        return np.zeros(len(x))


class Fails(BaseEstimator):
    def fit(self, x, y):
        raise RuntimeError("no\nluck")

    predict = fit


def rows_of(data):
    """Return the standardizer and the standardised rows of split 0."""
    train, test = datasets.splits(data, 1, 0)[0]
    scale = Standardizer.fit(data.x[train], data.y[train])
    x, x_test = np.asarray(scale.inputs(data.x[train])), np.asarray(scale.inputs(data.x[test]))
    return scale, x, np.asarray(scale.outputs(data.y[train])), x_test, data.y[test]


def test_a_mean_and_a_standard_deviation_are_scored_in_the_units_of_the_data():
    data, pipeline = datasets.load("diabetes"), make_pipeline(StandardScaler(), BayesianRidge())
    found = dgp_ppl.compare(data, [BayesianRidge(), ("pipe", pipeline)], **ONE)
    scale, x, y, x_test, y_test = rows_of(data)
    mean, sd = BayesianRidge().fit(x, y).predict(x_test, return_std=True)
    own = stats.norm(scale.original(mean), sd * scale.y_scale)
    for row, name in zip(found.splits, ("BayesianRidge", "pipe"), strict=True):
        assert (row["method"], row["density"], row["steps"]) == (name, "its own", None)
        assert row["rmse"] == pytest.approx(metrics.rmse(y_test, own.mean()), rel=1e-4)
        assert row["log_density"] == pytest.approx(own.logpdf(y_test).mean(), rel=1e-4)
        crps = metrics.crps_gaussian_mixture(y_test, own.mean()[None], own.std()[None])
        assert row["crps"] == pytest.approx(crps.mean(), rel=2e-3)
        assert row["coverage90"] == metrics.interval_coverage(y_test, *own.interval(0.9))


def test_a_mean_alone_has_the_errors_on_a_tenth():
    """It is fitted to all rows afterwards; what takes rows to stop by is not."""
    data = datasets.load("diabetes")
    found = dgp_ppl.compare(data, [LinearRegression(), Stops()], **ONE).splits
    scale, x, y, x_test, y_test = rows_of(data)
    held, rest = np.split(np.random.default_rng((0, 0)).permutation(len(x)), [len(x) // 10])
    errors = LinearRegression().fit(x[rest], y[rest]).predict(x[held]) - y[held]
    mean = scale.original(LinearRegression().fit(x, y).predict(x_test))
    own = stats.norm(mean, np.sqrt(np.mean(errors**2)) * scale.y_scale)
    assert found[0]["log_density"] == pytest.approx(own.logpdf(y_test).mean(), rel=1e-5)
    assert Stops.seen == (len(rest), len(held))
    assert [row["density"] for row in found] == [OF_ERRORS] * 2


def test_groups_stay_together_in_the_tenth(monkeypatch):
    labels, seen = np.repeat(np.arange(30), 10), []
    held, rest = _tenth(np.random.default_rng(0), 300, labels)
    assert not {*labels[held]} & {*labels[rest]}
    assert 30 <= len(held) < 50
    data = datasets.load("diabetes")
    kept = lambda rng, num, labels: seen.append(labels) or _tenth(rng, num, labels)  # noqa: E731
    monkeypatch.setattr("dgp_ppl.comparison._rivals._tenth", kept)
    dgp_ppl.compare(data, [LinearRegression()], groups="inputs", **ONE)
    train = datasets.splits(data, 1, 0, data.x)[0][0]
    np.testing.assert_array_equal(seen[0], data.x[train])


def test_sds_are_of_y():
    x, y = np.arange(9.0)[:, None], np.sin(np.arange(9.0))
    gp = GaussianProcessRegressor(alpha=0.1, optimizer=None).fit(x, y)
    sd = gp.predict(x, return_std=True)[1]
    np.testing.assert_allclose(_predicted(gp, x, None, 0).std() ** 2, sd**2 + 0.1)
    found = dgp_ppl.compare("diabetes", [DummyRegressor()], **ONE).splits[0]
    assert found["density"] == OF_ERRORS


def test_quantiles_and_distributions_have_their_own_density():
    found = dgp_ppl.compare("diabetes", [Quantiles(), Distribution()], **ONE).splits
    for name in ("rmse", "log_density", "crps", "coverage90"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-2)
    equal = _Quantiles(np.zeros((100, 3)))
    assert np.isfinite(equal.logpdf(np.zeros(3))).all()


def test_classes_without_training_rows_have_probability_0():
    data, forest = datasets.load("iris"), RandomForestClassifier(5, random_state=0)
    test = np.flatnonzero((data.y == 2) | (np.arange(150) % 2 == 0))
    data = dataclasses.replace(data, test_index=(test,))
    for row in dgp_ppl.compare(data, [forest, "hist_gradient_boosting"], **ONE).splits:
        assert row["accuracy"] == pytest.approx(0.5, abs=0.03)
        assert row["log_loss"] == np.inf


def test_a_killed_comparison_goes_on_with_the_same_estimators(tmp_path):
    def stop(row):
        if row["split"] == 1:
            raise KeyboardInterrupt

    methods = [("forest", RandomForestRegressor(3, random_state=0)), Fails()]
    options = {**ONE, "splits": 2, "out": tmp_path}
    with pytest.raises(dgp_ppl.Interrupted):
        dgp_ppl.compare("diabetes", methods, on_row=stop, **options)
    kept = json.loads((tmp_path / "results.json").read_text())["splits"]
    assert [r.get("error") for r in kept] == [None, "Fails: RuntimeError: no luck", None]
    with ThreadPoolExecutor(1) as pool:
        found = dgp_ppl.compare("diabetes", methods, resume=True, executor=pool, **options)
    assert (found.splits[:3], len(found.splits)) == (kept, 4)
    methods[0] = ("forest", RandomForestRegressor(4, random_state=0))
    with pytest.raises(dgp_ppl.DataError, match="another comparison: its rivals differ"):
        dgp_ppl.compare("diabetes", methods, resume=True, **options)
    assert identity(Stops()) != identity(Fails())


def test_errors_name_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)  # its import fails
    forest = RandomForestRegressor()
    for data, methods, error, words in (
        ("step", RandomForestRegressor(), TypeError, "methods is a RandomForestRegressor"),
        ("step", [RandomForestRegressor], ValueError, "wanted a name, an estimator with fit"),
        ("iris", [forest], ValueError, "wanted a classifier with predict_proba"),
        ("step", [RandomForestClassifier()], ValueError, "wanted a regressor"),
        ("step", [forest, forest], ValueError, r"pairs \(name, estimator\)"),
        ("step", [("dsvi", forest)], ValueError, "'dsvi' is taken"),
        ("step", [3], ValueError, "methods has 3, wanted a name, an estimator"),
        ("step", ["catboost"], ImportError, r"catboost wanted .*'dgp_ppl\[rivals\]'"),
    ):
        with pytest.raises(error, match=words):
            dgp_ppl.compare(data, methods, **ONE)
