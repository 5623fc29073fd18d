"""`DeepGPClassifier`: the fit of `compare`, classes of any type, and errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from support.estimators import fitted, run

from dgp_ppl.sklearn import DeepGPClassifier

X = np.linspace(-2, 2, 12)[:, None]


@pytest.mark.slow
def test_the_fit_is_that_of_compare():
    """Probabilities are in the order of the classes, and a row's depend on that row alone."""
    rows, gp = run("iris"), fitted("iris")
    for name, value in rows.fitted.result.params.items():
        np.testing.assert_array_equal(gp.params_[name], value)
    whole = gp.prediction(rows.x_test).probabilities
    np.testing.assert_array_equal(whole, rows.test.probabilities)
    found = gp.predict_proba(rows.x_test)
    assert found.shape == (len(rows.x_test), 3)
    np.testing.assert_allclose(found[:1], gp.prediction(rows.x_test[:1]).probabilities, atol=1e-5)
    np.testing.assert_array_equal(gp.predict_proba(rows.x_test[3:5]), found[3:5])
    classes = gp.predict(rows.x_test)
    np.testing.assert_array_equal(classes, gp.classes_[found.argmax(axis=1)])
    assert gp.score(rows.x_test, rows.y_test) == accuracy_score(rows.y_test, classes)


def test_classes_may_be_text_or_booleans(monkeypatch):
    monkeypatch.setattr(DeepGPClassifier, "_fit", lambda self, x, *given: given)
    is_high, places = X[:, 0] > 0, np.arange(12) % 3
    for y, classes, wanted, task in (
        (is_high, [False, True], is_high, "binary"),
        (np.array(["a", "c", "b"])[places], ["a", "b", "c"], np.array([0, 2, 1])[places], None),
    ):
        gp = DeepGPClassifier()
        numbers, found, num = gp.fit(X, y)
        np.testing.assert_array_equal(numbers, wanted)
        assert (gp.classes_.tolist(), found, num) == (classes, task or "multiclass", len(classes))
        gp.predict_proba = lambda X, num=num: np.eye(num)[[1, 0]]
        assert gp.predict(X).tolist() == [classes[1], classes[0]]


def test_errors():
    for method in ("predict", "predict_proba", "prediction"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(DeepGPClassifier(), method)(X)
    for options, y, message in (
        ({}, ["a"] * len(X), "y has one class, 'a', wanted at least two"),
        ({}, np.array(["a", None] * 6, object), "y has classes that cannot be sorted .*None"),
        ({}, pd.array(["a", pd.NA] * 6, dtype="string"), "y has missing values"),
        ({}, X[:, 0], "Unknown label type: continuous"),
        ({}, np.zeros((len(X), 2)), "y should be a 1d array"),
        ({"method": "sgpr"}, X[:, 0] > 0, "'sgpr', which needs Gaussian noise, wanted one of"),
        ({"likelihood": "softmax"}, X[:, 0] > 0, r"likelihood is 'softmax'.*probit"),
    ):
        with pytest.raises(ValueError, match=message):
            DeepGPClassifier(**options).fit(X, y)


def test_a_refit_that_fails_leaves_the_fit():
    """With its classes: others would be read into its probabilities."""
    gp = DeepGPClassifier()
    gp.classes_, gp.fitted_, gp.n_features_in_ = np.array(["a", "b"]), object(), 3
    before = dict(vars(gp))
    with pytest.raises(ValueError, match="method is 'nope'"):
        gp.set_params(method="nope").fit(X, ["yes", "no"] * (len(X) // 2))
    assert vars(gp) == before | {"method": "nope"}
