"""`DeepGPClassifier`: the fit of `compare`, classes of any type, and errors."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from support.estimators import SMALL, fitted, run

from dgp_ppl.sklearn import DeepGPClassifier

X = np.linspace(-2, 2, 12)[:, None]


def test_the_fit_is_that_of_compare():
    rows, gp = run("iris"), fitted("iris")
    found = gp.prediction(rows.x_test)
    np.testing.assert_array_equal(found.probabilities, rows.test.probabilities)
    for name, value in rows.fitted.result.params.items():
        np.testing.assert_array_equal(gp.params_[name], value)
    alone = gp.prediction(rows.x_test[:1]).probabilities
    np.testing.assert_allclose(gp.predict_proba(rows.x_test)[:1], alone, atol=1e-5)


@pytest.mark.slow
def test_probabilities_and_classes_belong_together():
    rows, gp = run("iris"), fitted("iris")
    probabilities = gp.predict_proba(rows.x_test)
    assert probabilities.shape == (len(rows.x_test), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    found = gp.predict(rows.x_test)
    np.testing.assert_array_equal(found, gp.classes_[probabilities.argmax(axis=1)])
    assert gp.score(rows.x_test, rows.y_test) == accuracy_score(rows.y_test, found)
    np.testing.assert_array_equal(gp.predict_proba(rows.x_test[3:5]), probabilities[3:5])


def test_classes_may_be_text_or_booleans():
    options = {"depth": 1, "random_state": 0, **SMALL}
    text = DeepGPClassifier(**options).fit(X, np.where(X[:, 0] > 0, "late", "early"))
    assert text.classes_.tolist() == ["early", "late"]
    assert set(text.predict(X)) <= {"early", "late"}
    truth = DeepGPClassifier(**options).fit(X, X[:, 0] > 0)
    assert truth.predict(X).dtype == bool
    np.testing.assert_array_equal(truth.predict_proba(X), text.predict_proba(X))


def test_errors():
    for method in ("predict", "predict_proba", "prediction"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(DeepGPClassifier(), method)(X)
    for options, y, message in (
        ({}, ["a"] * len(X), "y has one class, 'a', wanted at least two"),
        ({}, X[:, 0], "Unknown label type: continuous"),
        ({}, np.zeros((len(X), 2)), "y should be a 1d array"),
        ({"method": "sgpr"}, X[:, 0] > 0, "'sgpr', which needs Gaussian noise, wanted one of"),
        ({"likelihood": "softmax"}, X[:, 0] > 0, r"likelihood is 'softmax'.*probit"),
    ):
        with pytest.raises(ValueError, match=message):
            DeepGPClassifier(**options).fit(X, y)
