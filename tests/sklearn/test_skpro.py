"""`SkproRegressor` against the prediction of the estimator that it wraps."""

import pickle

import numpy as np
import pandas as pd
import pytest
from support.estimators import SMALL

import dgp_ppl.sklearn
from dgp_ppl.sklearn import DeepGPRegressor

ROWS = pd.Index([f"row {i}" for i in range(24)])
X = pd.DataFrame({"a": np.linspace(-2, 2, 24), 7: np.cos(np.arange(24))}, ROWS)
Y = pd.DataFrame({"height": 90 + 20 * np.sin(2 * X["a"])})


@pytest.fixture
def regressor():
    pytest.importorskip("skpro", reason="needs the extra `skpro`")
    options = {"depth": 2, "random_state": 0, **SMALL}
    kind = dgp_ppl.sklearn.SkproRegressor
    return lambda **others: kind(DeepGPRegressor(**options | others))


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_its_distributions_are_those_of_the_prediction(regressor, likelihood):
    from skpro.metrics import CRPS

    gp = regressor(likelihood=likelihood).fit(X[:16], Y[:16])
    x, y = X[16:], Y[16:]
    d, p = gp.predict_proba(x), gp.estimator_.prediction(x.rename(columns=str))
    values, levels = y["height"].to_numpy(), [0.05, 0.5]

    def same(found, wanted):
        pd.testing.assert_frame_equal(found, pd.DataFrame(wanted, x.index, y.columns), rtol=1e-6)

    for found, wanted in (
        (gp.predict(x), p.mean),
        (gp.predict_var(x), p.var),
        (d.log_pdf(y), p.log_prob(values)),
        (d.pdf(y), np.exp(p.log_prob(values))),
        (d.cdf(y), p.cdf(values)),
    ):
        same(found, wanted)
    quantiles = gp.predict_quantiles(x, levels)
    assert quantiles.columns.tolist() == [("height", q) for q in levels]
    np.testing.assert_allclose(quantiles, p.quantile(levels).T, rtol=1e-5)
    np.testing.assert_allclose(gp.predict_interval(x, 0.9).T, p.interval(0.9), rtol=1e-5)
    np.testing.assert_allclose(CRPS()(y, d), p.crps(values).mean(), rtol=1e-6)
    mixed = np.linspace(0.1, 0.9, len(x))
    same(d.ppf(mixed[:, None]), np.diag(p.quantile(mixed)))


def test_a_part_has_the_values_of_the_whole(regressor):
    d = regressor().fit(X, Y).predict_proba(X)
    y = np.array([[60.0], [100.0], [90.0]])
    part = d.iloc[[3, 3, 1]]
    assert part.index.tolist() == ["row 3", "row 3", "row 1"]
    whole = [d.cdf(float(v)).iloc[i, 0] for v, i in zip(y[:, 0], (3, 3, 1), strict=True)]
    np.testing.assert_allclose(part.cdf(y)["height"], whole, rtol=1e-6)
    np.testing.assert_array_equal(d.loc[["row 5"]].mean(), d.mean().loc[["row 5"]])
    one = d.iat[5, 0]
    assert (one.shape, one.mean(), np.ndim(one.sample())) == ((), d.mean().iloc[5, 0], 0)
    np.testing.assert_allclose(one.ppf(one.cdf(95.0)), 95, rtol=1e-4)


def test_draws_and_energies_are_of_its_gaussians(regressor):
    d = regressor(method="gp").fit(X[:16], Y[:16]).predict_proba(X[16:])
    sd = np.sqrt(d.var().to_numpy())
    np.testing.assert_allclose(d.energy(), 2 * sd / np.sqrt(np.pi), rtol=1e-3)
    np.testing.assert_allclose(d.energy(d.mean()), sd * np.sqrt(2 / np.pi), rtol=1e-3)
    np.random.seed(0)  # noqa: NPY002 (skpro's own)
    draws = d.sample(2000)
    assert draws.index.equals(pd.MultiIndex.from_product([range(2000), X.index[16:]]))
    means = draws.groupby(level=1, sort=False).mean()
    assert (abs(means - d.mean()) < 4.5 * sd / np.sqrt(2000)).all(axis=None)
    assert not d.sample().equals(d.sample())


def test_parameters_are_those_of_the_estimator(regressor):
    gp = regressor()
    other = gp.clone().set_params(estimator__depth=1)
    depths = [g.get_params()["estimator__depth"] for g in (gp, gp.clone(), other)]
    assert depths == [2, 2, 1]
    gp.fit(X, Y)
    assert not hasattr(gp.estimator, "result_")
    again = pickle.loads(pickle.dumps(gp))
    pd.testing.assert_frame_equal(again.predict(X), gp.predict(X))


def test_errors_name_the_cure(regressor):
    with pytest.raises(ValueError, match=r"y should be a 1d array"):
        regressor().fit(X, Y.assign(width=1.0))
    with pytest.raises(TypeError, match=r"estimator is 3.*wanted a DeepGPRegr"):
        type(regressor())(3).fit(X, Y)


def test_without_skpro_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr("dgp_ppl.sklearn.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"wanted skpro; .*install 'dgp_ppl\[skpro\]'"):
        from dgp_ppl.sklearn import SkproRegressor  # noqa: F401
    assert not hasattr(dgp_ppl.sklearn, "Skpro")


@pytest.mark.ecosystem
@pytest.mark.filterwarnings("ignore")
def test_checks_of_skpro(regressor):
    from skpro.utils import check_estimator

    class Checked(type(regressor())):
        @classmethod
        def get_test_params(cls, parameter_set="default"):
            return [regressor(depth=d).get_params(deep=False) for d in (1, 2)]

    # Its examples run in the docs: their modules import skpro.
    check_estimator(
        Checked, raise_exceptions=True, tests_to_exclude="test_class_has_doctest_example"
    )
