"""What both estimators share: parameters, pickles, scikit-learn's tools and its checks."""

import dataclasses
import inspect
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.estimators import SMALL, fitted, run
from support.helpers import KEY, compiled

import dgp_ppl as dgp
from dgp_ppl import _waiting
from dgp_ppl.comparison import Setting
from dgp_ppl.sklearn import DeepGPClassifier, DeepGPRegressor

X = np.linspace(-2, 2, 12)[:, None]
Y = np.sin(X[:, 0])
EPOCH = np.datetime64(0, "D")
OWN = {"method", "random_state", "verbose"}
FROM_THE_DATA = {"task", "outputs"}  # settings that `fit` finds in y
OF_TABLES = {"category_kernel", "as_published"}


@pytest.mark.parametrize(("method", "program"), [("dsvi", "run_chunk"), ("sgpr", "value")])
def test_folds_of_other_sizes_share_programs(caplog, method, program):
    x, options = np.linspace(-2, 2, 23)[:, None], {"random_state": 0, "depth": 1, **SMALL}
    gp = DeepGPRegressor(method=method, **options)
    names = compiled(caplog, lambda: cross_val_predict(gp, x, np.sin(x[:, 0]), cv=2))
    assert names.count(f"jit({program})") == names.count("jit(predictive_passes)") == 1


def test_parameters_are_those_of_compare():
    for estimator in (DeepGPRegressor, DeepGPClassifier):
        given = inspect.signature(estimator).parameters
        settings = {f.name for f in dataclasses.fields(Setting)}
        assert given.keys() - OWN == settings - FROM_THE_DATA - OF_TABLES
        compared = inspect.signature(dgp.compare).parameters
        for name in given.keys() - OWN:
            assert given[name].default == compared[name].default, name
        with pytest.raises(TypeError, match=r"no parameter category_kernel, wanted some of model"):
            estimator(category_kernel=True)


def test_clone_and_repr():
    gp = DeepGPRegressor(depth=3, learning_rate=0.05)
    assert clone(gp).get_params() == gp.get_params()
    assert repr(gp) == "DeepGPRegressor(depth=3, learning_rate=0.05)"
    assert not hasattr(clone(fitted("step")), "params_")
    assert "DeepGPRegressor" in fitted("step")._repr_html_()


def test_a_pickle_and_a_file_predict_the_same(tmp_path):
    gp, x = fitted("step"), run("step").x_test
    again = pickle.loads(pickle.dumps(gp))
    np.testing.assert_array_equal(again.predict(x), gp.predict(x))
    scale, options = gp.standardizer_, {"num_samples": SMALL["samples"]}
    path = tmp_path / "fit.dgp"
    dgp.save(path, gp.model_, gp.guide_, gp.result_, standardizer=scale, **gp.model_kwargs_)
    kept = dgp.load(path)
    wanted = gp.fitted_.fits[0].predict(KEY, x, standardizer=scale, **options)
    np.testing.assert_array_equal(kept.predict(KEY, x, **options).mean, wanted.mean)
    np.testing.assert_array_equal(kept.losses, gp.loss_curve_)
    assert gp.n_features_in_ == 1


def test_a_number_is_the_seed_and_a_state_draws_one():
    def seed(state):
        return DeepGPRegressor(random_state=state)._seed()

    assert seed(5) == seed(np.int64(5)) == 5
    assert seed(np.random.RandomState(1)) == seed(np.random.RandomState(1))
    state = np.random.RandomState(1)
    assert seed(state) != seed(state)
    assert seed(None) != seed(None)


@pytest.mark.parametrize("verbose", [False, True])
def test_a_terminal_shows_for_how_long_it_fits(monkeypatch, capsys, verbose):
    monkeypatch.setattr(_waiting, "on_terminal", lambda: True)
    monkeypatch.setattr(_waiting, "_FIRST", 0.01)
    monkeypatch.setattr(_waiting.Waiting, "others", 0)  # whatever bars other tests have left
    DeepGPRegressor(**SMALL, verbose=verbose).fit(X, X[:, 0])
    shown = capsys.readouterr().err
    assert ("compiling or running" in shown, "dsvi: " in shown) == (not verbose, verbose)


def test_wrong_parameters_are_named():
    for options, error, message in (
        ({"method": "gpr"}, ValueError, "method is 'gpr', wanted one of sgpr, dsvi, "),
        ({"model": "gp"}, ValueError, "model is 'gp', wanted one of deep_gp, "),
        ({"likelihood": "probit"}, ValueError, "likelihood is 'probit', wanted one for the target"),
        ({"depth": 0}, ValueError, "depth is 0, wanted at least 1"),
        ({"learning_rate": "0.1"}, ValueError, "learning_rate is '0.1', wanted a positive number"),
        ({"random_state": -1}, ValueError, "random_state is -1, wanted at least 0"),
        ({"random_state": "a"}, TypeError, "random_state is 'a', wanted a seed"),
        ({"samples": None}, TypeError, "samples is None, wanted an integer"),
    ):
        with pytest.raises(error, match=f"DeepGPRegressor: {message}"):
            DeepGPRegressor(**options).fit(X, Y)


def test_data_that_cannot_be_used_are_one_line():
    frame = pd.DataFrame({"area": X[:, 0], "colour": ["red", "blue"] * 6})
    dates = frame[["area"]].assign(day=pd.date_range("2026", periods=12))
    holes = np.where(X > 1.5, np.nan, X)
    for x, y, message in (
        (frame, Y, r"X has text in 'colour' .* OneHotEncoder .* dgp_ppl\.datasets\.Preprocessor"),
        (pa.Table.from_pandas(frame), Y, r"X has text in 'colour' .* OneHotEncoder"),
        (dates, Y, r"X has dates in 'day' \(datetime64.*Preprocessor turns dates into days"),
        (pa.Table.from_pandas(dates), Y, r"X has dates in 'day' \(timestamp"),
        (dates[["day"]].to_numpy(), Y, r"X has dates \(datetime64"),
        ([[day] for day in dates["day"].to_numpy() - EPOCH], Y, r"X has dates \(timedelta64"),
        (dates[["day"]].apply(lambda day: day.dt.tz_localize("UTC")), Y, "X has dates in 'day'"),
        (X, dates["day"], r"y has dates \(datetime64"),
        (frame.set_axis(["a", "a"], axis=1), Y, "Expected unique column names"),
        (1e30 * X / 2, Y, r"X has values up to 1e\+30, wanted at most"),
        (X + 1j, Y, "Complex data not supported"),
        (X, Y + 1j, "Complex data not supported"),
        (np.ma.masked_array(X, X > 1), Y, "X is masked, .* leave these rows out"),
        (X, np.ma.masked_array(Y, Y > 0.5), "y is masked"),
        (holes, Y, r"X has missing values \(NaN\), .* put a SimpleImputer in front"),
    ):
        with pytest.raises(ValueError, match=f"^DeepGPRegressor: {message}.*$"):
            DeepGPRegressor().fit(x, y)


# Rows are few: each check has other shapes, for which programs are compiled.
CHECKED = [
    DeepGPRegressor(inducing=8, steps=60, samples=4),
    DeepGPClassifier(depth=1, inducing=8, steps=60, samples=4),
]


@pytest.mark.ecosystem
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(CHECKED)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
