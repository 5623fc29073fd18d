"""The baseline methods against scikit-learn and NumPy."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import BayesianRidge

import dgp_ppl
from dgp_ppl import datasets
from dgp_ppl.comparison._metrics import METRICS
from dgp_ppl.linalg import default_jitter
from dgp_ppl.sklearn import DeepGPRegressor

TINY = {"steps": 4, "inducing": 4, "samples": 4, "draws": 4, "progress": False}


def few(name, rows):
    data = datasets.load(name)
    kept = np.random.default_rng(0).permutation(len(data.y))[:rows]
    return dataclasses.replace(data, x=data.x[kept], y=data.y[kept])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "gp", "bnn", "ensemble"])
def test_from_rows_to_files(method, tmp_path):
    comparison = dgp_ppl.compare(few("diabetes", 40), [method], splits=1, out=tmp_path, **TINY)
    (row,) = comparison.splits
    assert set(row) == {"split", "method", *METRICS["regression"]}
    assert np.isfinite([row["rmse"], row["log_density"], row["crps"]]).all()
    assert (tmp_path / f"{method}.nc").stat().st_size > 10_000
    assert (row["elbo_per_datum"] is None) == (method == "ensemble")
    assert row["rhat"] is None


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bnn", "ensemble"])
def test_classes(method):
    comparison = dgp_ppl.compare(few("iris", 60), [method], splits=1, **(TINY | {"steps": 300}))
    assert comparison.splits[0]["accuracy"] > 0.6


def test_linear_is_bayesian_linear_regression():
    """Both maximise the evidence; scikit-learn's priors on the scales are nearly flat."""
    data = few("diabetes", 200)
    comparison = dgp_ppl.compare(data, ["linear"], splits=1, **(TINY | {"steps": 1500}))
    run = comparison.fits["linear"]
    scale = run.standardizer
    ridge = BayesianRidge(fit_intercept=False).fit(
        np.asarray(scale.inputs(run.x)), np.asarray(scale.outputs(run.y))
    )
    _, sd = ridge.predict(np.asarray(scale.inputs(run.x_test)), return_std=True)
    rmse = {
        "ours": np.sqrt(np.mean((run.test.mean - run.y_test) ** 2)),
        "ridge": np.sqrt(
            np.mean((scale.original(ridge.predict(scale.inputs(run.x_test))) - run.y_test) ** 2)
        ),
    }
    assert rmse["ours"] == pytest.approx(rmse["ridge"], rel=0.01)
    np.testing.assert_allclose(np.sqrt(run.test.var), sd * scale.y_scale, rtol=0.03)


@pytest.mark.parametrize("method", ["gp", "local"])
def test_gp_is_exact(method):
    """The ELBO equals log p(y), and the predictive mean is exact, also with repeated rows.

    So is `local` of one layer and few rows, whose lengthscales of g have a prior.
    """
    data = few("diabetes", 30)
    y = np.repeat(data.y, 2) + 30 * np.random.default_rng(0).standard_normal(60)
    data = dataclasses.replace(data, x=np.repeat(data.x, 2, axis=0), y=y)
    comparison = dgp_ppl.compare(data, [method], splits=1, depth=1, **(TINY | {"steps": 100}))
    run = comparison.fits[method]
    params = {n: np.asarray(a, np.float64) for n, a in run.fitted.result.params.items()}
    x, y, x_test = (
        np.asarray(a, np.float64)
        for a in (
            run.standardizer.inputs(run.x), run.standardizer.outputs(run.y),
            run.standardizer.inputs(run.x_test),
        )
    )  # fmt: skip

    rough = [params[n] for n in ("g.lengthscale", "g.short.lengthscale") if method == "local"]

    def kernel(a, b):
        square = lambda scale: (((a[:, None] - b) / scale) ** 2).sum(axis=-1)  # noqa: E731
        smooth = params["l1.variance"] * np.exp(-0.5 * square(params["l1.lengthscale"]))
        if method == "gp":
            return smooth
        far, short = (np.exp(-np.sqrt(square(scale))) for scale in rough)
        return smooth + params["g.variance"] * far + params["g.short.variance"] * short

    K = kernel(x, x) + params["noise"] ** 2 * np.eye(len(x))
    evidence = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2 * np.pi * K)[1])
    evidence -= 0.5 * np.sum(np.square(np.log(rough) / 1.5))  # the prior
    assert run.fitted.elbo_per_datum == pytest.approx(evidence / len(y), abs=1e-6)
    mean = kernel(x_test, x) @ np.linalg.solve(K, y)
    np.testing.assert_allclose(run.test.mean, run.standardizer.original(mean), rtol=1e-4)
    if method == "local":  # predictions have the tails of rows given all others
        inverse, df = np.linalg.inv(K), params["g.df"]
        z = inverse @ y / np.sqrt(np.diag(inverse))
        loss = lambda df: -stats.t.logpdf(z, df, scale=np.sqrt(1 - 2 / df)).sum()  # noqa: E731
        assert loss(df) < min(loss(0.9 * df + 0.2), loss(1.1 * df - 0.2))
        y_test = run.test.mean + 2.0
        given = stats.t(df, run.test.mean, np.sqrt(run.test.var * (1 - 2 / df)))
        np.testing.assert_allclose(run.test.log_prob(y_test), given.logpdf(y_test), rtol=1e-4)


def test_too_many_rows_are_one_row_of_the_table(monkeypatch):
    monkeypatch.setattr("dgp_ppl.comparison.methods._baselines._EXACT_ROWS", 20)
    comparison = dgp_ppl.compare(few("diabetes", 40), ["gp", "linear"], splits=1, **TINY)
    assert "36 training rows, wanted at most 20" in comparison.splits[0]["error"]
    assert "error" not in comparison.splits[1]


def test_the_exact_gp_predicts_with_what_rounding_needs():
    """Of rows without noise its param falls to 1e-40 or 0, beside the covariance's jitter."""
    rng = np.random.default_rng(7)
    x = np.c_[rng.uniform(size=14), rng.integers(0, 5, 14) / 4, rng.integers(0, 2, 14)]
    y = 3 * (x[:, 0] - 0.3) ** 2 + 0.4 * x[:, 1] + 0.4 * x[:, 2]
    gp = DeepGPRegressor(method="gp", random_state=0).fit(x, y)
    least = default_jitter(np.float64) * gp.params_["l1.variance"]
    assert gp.params_["noise"] ** 2 >= least * (1 - 1e-6)
    np.testing.assert_allclose(gp.predict(x), y, atol=1e-3)
