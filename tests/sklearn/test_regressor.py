"""`DeepGPRegressor`: the fit of `compare`, predictions, draws, and errors."""

import jax
import jax.export
import numpy as np
import pandas as pd
import pytest
from jax import random
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from support.estimators import SMALL, fitted, run
from support.exports import call

import dgp_ppl as dgp
from dgp_ppl.sklearn import DeepGPRegressor


@pytest.fixture(scope="module")
def gp():
    return fitted("step")


@pytest.fixture(scope="module")
def x():
    return run("step").x_test


def test_the_fit_is_that_of_compare():
    for method in ("dsvi", "sgpr"):
        rows, gp = run("step", method), fitted("step", method)
        found = gp.prediction(rows.x_test)
        np.testing.assert_array_equal(found.mean, rows.test.mean)
        np.testing.assert_array_equal(found.var, rows.test.var)
        assert gp.elbo_per_datum_ == rows.fitted.elbo_per_datum
        for name, value in rows.fitted.result.params.items():
            np.testing.assert_array_equal(gp.params_[name], value)


def test_a_noise_free_gp_is_predicted_in_float64():
    """In float32 the factor of its rows would have the sd 1e-2 in place of 1e-5."""
    x = np.linspace(-2, 2, 40)[:, None]
    gp = DeepGPRegressor(method="gp").fit(x, np.exp(x[:, 0]))
    mean, sd = gp.predict(x[5:8] + 0.04, return_std=True)
    p = gp.prediction(x[5:8] + 0.04)
    np.testing.assert_allclose(sd, np.sqrt(p.var), rtol=1e-2)  # float64 has few digits of it
    np.testing.assert_allclose(mean, np.exp(x[5:8, 0] + 0.04), atol=1e-4)
    slope = dgp.function(p).gradient(jax.random.key(0), x[5:8])[0]
    np.testing.assert_allclose(slope[:, 0], np.exp(x[5:8, 0]), atol=1e-2)


def test_a_rows_values_depend_on_that_row_alone(gp, x, monkeypatch):
    """They are those of its prediction, for any other rows and in any chunks."""
    mean, std, quantiles = gp.predict(x, return_std=True, quantiles=[0.1, 0.9])
    for i in (0, 4):
        alone = gp.prediction(x[i : i + 1])
        np.testing.assert_allclose(mean[i], alone.mean[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(std[i], alone.var[0] ** 0.5, rtol=1e-4)
        np.testing.assert_allclose(quantiles[i], alone.quantile([0.1, 0.9])[:, 0], atol=1e-4)
    mean, std = gp.predict(x, return_std=True)
    alone = [gp.predict(row[None], return_std=True) for row in x]
    np.testing.assert_array_equal(np.ravel([m for m, _ in alone]), mean)
    np.testing.assert_array_equal(np.ravel([s for _, s in alone]), std)
    np.testing.assert_array_equal(gp.predict(x[::-1]), mean[::-1])
    monkeypatch.setattr("dgp_ppl.sklearn._estimator._FEWEST_ROWS", 4)
    monkeypatch.setattr("dgp_ppl.sklearn._estimator._MAX_PASSES", 4 * 4)
    np.testing.assert_allclose(gp.predict(x, return_std=True), [mean, std], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_restarts_are_mixed(x):
    rows, gp = run("step"), DeepGPRegressor(random_state=3, restarts=2, **SMALL)
    gp.fit(rows.x, rows.y)
    assert len(gp.fitted_.fits) == 2
    np.testing.assert_array_equal(gp.params_["noise"], fitted("step").params_["noise"])
    alone = gp.prediction(x[:1])
    assert alone.num_samples == 8
    np.testing.assert_allclose(gp.predict(x)[0], alone.mean[0], atol=1e-5)


def test_what_predict_returns(gp, x):
    mean = gp.predict(x)
    assert (mean.shape, mean.dtype) == ((len(x),), np.float64)
    _, median = gp.predict(x, quantiles=0.5)
    assert median.shape == (len(x),)
    _, std, quantiles = gp.predict(x, return_std=True, quantiles=[0.1, 0.9])
    assert (std.shape, quantiles.shape) == ((len(x),), (len(x), 2))
    assert ((quantiles[:, 0] < median) & (median < quantiles[:, 1])).all()
    assert gp.score(x, run("step").y_test) == r2_score(run("step").y_test, mean)


def test_draws_have_the_moments_of_predictions(gp, x):
    draws = gp.sample_y(x, 4000)
    assert draws.shape == (len(x), 4000)
    p = gp.prediction(x)
    error = np.sqrt(p.var / 4000)
    np.testing.assert_array_less(np.abs(draws.mean(axis=1) - p.mean), 5 * error)
    np.testing.assert_allclose(draws.var(axis=1), p.var, rtol=0.2)
    np.testing.assert_array_equal(gp.sample_y(x, 2), gp.sample_y(x, 2))
    assert (gp.sample_y(x, 2) != gp.sample_y(x, 2, random_state=1)).all()


@pytest.mark.slow
def test_noise_may_change_with_the_inputs(x):
    rows = run("step")
    gp = DeepGPRegressor(likelihood="heteroscedastic", random_state=0, **SMALL)
    gp.fit(rows.x, rows.y)
    assert len(np.unique(gp.predict(x, return_std=True)[1])) == len(x)
    draws = gp.sample_y(x, 100, noise=False)  # of the mean, not of the log scale
    error = draws.std(axis=1) / 10
    np.testing.assert_array_less(np.abs(draws.mean(axis=1) - gp.predict(x)), 5 * error)


def test_columns_of_a_frame_are_known_by_name(x):
    rows = run("step")
    gp = DeepGPRegressor(method="sgpr", random_state=3, **SMALL)
    gp.fit(pd.DataFrame(rows.x, columns=["age"]), pd.Series(rows.y))
    assert gp.feature_names_in_.tolist() == ["age"]
    found = gp.predict(pd.DataFrame(x, columns=["age"]))
    np.testing.assert_array_equal(found, fitted("step", "sgpr").predict(x))
    for frame in (
        pd.DataFrame(x, columns=["height"]),
        pd.DataFrame(x, columns=["age"]).assign(a=1),
    ):
        with pytest.raises(ValueError, match="should match those that were passed during fit"):
            gp.predict(frame)


def test_errors_of_targets():
    x = np.arange(5.0)[:, None]
    for y, message in (
        (np.zeros((5, 2)), "y should be a 1d array"),
        (["a", "b", "a", "b", "c"], r"y is text .* use DeepGPClassifier"),
        ([0, 1, np.nan, 3, 4], "Input y contains NaN"),
        (np.array([0, 1, None, 3, 4]), r"y has missing values .* leave these rows out"),
    ):
        with pytest.raises(ValueError, match=message):
            DeepGPRegressor().fit(x, y)


def test_errors_of_predictions(gp, x):
    with pytest.raises(NotFittedError):
        DeepGPRegressor().predict(x)
    for levels in ([0.0, 0.5], 1.0, [[0.5]], [], "a"):
        with pytest.raises(ValueError, match=r"quantiles is .* wanted levels strictly between"):
            gp.predict(x, quantiles=levels)
    with pytest.raises(ValueError, match="X has 2 features, but DeepGPRegressor is expecting 1"):
        gp.predict(np.zeros((3, 2)))


@pytest.fixture(scope="module")
def in_float64():
    """A fit whose params are float64: in float32 they mean another function."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (60, 1))
    y = np.sin(3 * x[:, 0]) + 0.01 * rng.standard_normal(60)
    return DeepGPRegressor(method="sgpr", inducing=25, samples=2, random_state=0).fit(x, y), x


def test_a_fit_in_float64_predicts_in_float64(in_float64):
    gp, x = in_float64
    assert gp.fitted_.fits[0].result.params["noise"].dtype == np.float64
    mean, sd = gp.predict(x, return_std=True)
    np.testing.assert_allclose(mean, gp.prediction(x).mean, atol=1e-4)
    np.testing.assert_allclose(sd**2, gp.prediction(x).var, rtol=1e-2)


@pytest.mark.slow
def test_other_functions_compute_with_its_params_in_float64(in_float64, tmp_path):
    gp, x = in_float64
    fit, scale = gp.fitted_.fits[0], gp.fitted_.standardizer
    program = random.key(0), fit.model, fit.guide, fit.result.params
    inputs, y = (
        np.asarray(a, np.float32) for a in (scale.inputs(x), scale.outputs(np.sin(3 * x[:, 0])))
    )
    p = dgp.predict(*program, inputs, **fit.kwargs)
    np.testing.assert_allclose(
        jax.jit(lambda a: dgp.predict(*program, a, **fit.kwargs).mean)(inputs), p.mean, atol=1e-5
    )
    layer = dgp.layer_functions(*program, inputs, num_draws=2, **fit.kwargs)["l1"]
    np.testing.assert_allclose(layer.mean[:, 0], p.mean, atol=1e-5)
    bound, _ = dgp.evaluate(*program, inputs, y, **fit.kwargs)
    assert bound / 60 == pytest.approx(gp.elbo_per_datum_, abs=0.5)
    tree = dgp.to_inferencedata(
        *program, inputs, y, num_samples=50, num_prior_samples=0, **fit.kwargs
    )
    assert float(tree.log_likelihood["y"].mean()) == pytest.approx(p.log_prob(y).mean(), abs=0.5)
    dgp.export(tmp_path / "program", p)
    found = call(tmp_path / "program", inputs)["mean"]
    np.testing.assert_allclose(found, p.mean[: len(found)], atol=1e-5)
