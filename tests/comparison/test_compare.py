"""`compare`: the results, their files, and errors."""

import dataclasses
import json

import numpy as np
import pytest
import xarray
from support.comparisons import TINY

import dgp_ppl
from dgp_ppl import datasets
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison import METHODS, METRICS


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """A comparison of the default methods on two splits of a data set, and its folder."""
    out = tmp_path_factory.mktemp("compare") / "deep" / "er"
    return dgp_ppl.compare("step", splits=2, seed=3, out=out, **TINY), out


def test_results_json_has_the_documented_form(outcome):
    comparison, out = outcome
    record = json.loads((out / "results.json").read_text())
    assert set(record) == {"data", "config", "versions", "splits", "summary"}
    assert [(r["split"], r["method"]) for r in record["splits"]] == [
        (s, m) for s in (0, 1) for m in ("sgpr", "svgp", "dsvi")
    ]
    assert all(set(r) == {"split", "method", *METRICS["regression"]} for r in record["splits"])
    assert all(set(r) == {"method", *METRICS["regression"]} for r in record["summary"])
    assert record["config"]["inducing"] == 4
    assert {"dgp_ppl", "jax", "numpyro", "python"} <= set(record["versions"])
    assert record["splits"] == comparison.splits


def test_summary_is_the_mean_and_its_standard_error(outcome):
    comparison, _ = outcome
    for row in comparison.summary:
        values = [r["rmse"] for r in comparison.splits if r["method"] == row["method"]]
        assert row["rmse"]["mean"] == pytest.approx(np.mean(values))
        assert row["rmse"]["se"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(2))


def test_metrics_are_those_of_the_prediction(outcome):
    comparison, _ = outcome
    run, row = comparison.fits["svgp"], comparison.splits[1]
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((run.test.mean - run.y_test) ** 2)))
    assert row["log_density"] == pytest.approx(run.test.log_prob(run.y_test).mean())


def test_standardizer_has_seen_training_rows_only(outcome):
    run = outcome[0].fits["dsvi"]
    scale = run.standardizer
    np.testing.assert_allclose([scale.y_loc, scale.y_scale], [run.y.mean(), run.y.std()])
    np.testing.assert_allclose(scale.x_loc, run.x.mean(axis=0))
    np.testing.assert_allclose(scale.x_scale, run.x.std(axis=0))
    assert len(run.y) == 90
    assert len(run.y_test) == 10


def test_plots_are_written(outcome):
    for name in ("training", "predictions", "pit", "function"):
        data = (outcome[1] / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 10_000


@pytest.mark.parametrize("method", ["sgpr", "svgp", "dsvi"])
def test_arviz_file_opens(outcome, method):
    with xarray.open_datatree(outcome[1] / f"{method}.nc", engine="h5netcdf") as tree:
        groups = {"posterior", "posterior_predictive", "log_likelihood", "observed_data"}
        assert groups <= set(tree.children)
        assert tree["log_likelihood"]["y"].sizes == {"chain": 1, "draw": 40, "data": 90}
        assert tree["predictions"]["y"].sizes["test"] == 10
        assert tree["sample_stats"]["loss"].size == 4
        assert np.isfinite(tree["log_likelihood"]["y"]).all()
        assert json.loads(tree.attrs["config"])["steps"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "likelihood"), [("breast_cancer", "logit"), ("breast_cancer", None),
                             ("iris", None), ("iris", "robust_max")],
)  # fmt: skip
def test_classes(data, likelihood, tmp_path):
    """Classification from the data to the files."""
    found = dgp_ppl.compare(data, splits=1, likelihood=likelihood, out=tmp_path, **TINY)
    assert [row["method"] for row in found.splits] == ["svgp", "dsvi"]
    task = found.record["data"]["task"]
    assert all(set(r) == {"split", "method", *METRICS[task]} for r in found.splits)
    assert found.record["config"]["likelihood"] == likelihood or likelihood is None
    for row in found.splits:
        run = found.fits[row["method"]]
        held = run.test.probabilities
        np.testing.assert_allclose(held.sum(axis=1), 1.0, rtol=1e-12)
        assert row["accuracy"] == (held.argmax(axis=1) == run.y_test).mean()
        assert row["log_loss"] == pytest.approx(-run.test.log_prob(run.y_test).mean(), rel=1e-3)
        assert ("auc" in row) == (task == "binary")
        assert (run.standardizer.y_loc, run.standardizer.y_scale) == (0.0, 1.0)
    assert {p.name for p in tmp_path.iterdir()} == {
        "results.json", "training.png", "reliability.png", "svgp.nc", "dsvi.nc",
    }  # fmt: skip
    with xarray.open_datatree(tmp_path / "dsvi.nc", engine="h5netcdf") as tree:
        drawn = np.unique(tree["posterior_predictive"]["y"])
        assert set(drawn) <= set(range(held.shape[1]))
        assert np.isfinite(tree["log_likelihood"]["y"]).all()


def test_pixels_are_scaled_together():
    """One location and scale for all pixels, so that nearly constant ones stay nearly constant."""
    digits = datasets.load("digits")
    few = dataclasses.replace(digits, x=digits.x[:200], y=digits.y[:200])
    run = dgp_ppl.compare(few, ["svgp"], splits=1, **TINY).fits["svgp"]
    assert run.standardizer.x_loc == pytest.approx(np.full(64, run.x.mean()))
    assert run.standardizer.x_scale == pytest.approx(np.full(64, run.x.std()))


def test_what_does_not_fit_the_task():
    for options, text in (
        ({"methods": ["svgp", "sgpr"]}, r"methods has \['sgpr'\], which need Gaussian noise"),
        ({"likelihood": "softmax"}, r"likelihood is 'softmax', wanted .*\(binary\): probit, logit"),
        ({"model": "deepgp"}, "model is 'deepgp', wanted one of deep_gp"),
    ):
        with pytest.raises(ValueError, match=text):
            dgp_ppl.compare("breast_cancer", **(TINY | options))


def test_splits_by_their_numbers(outcome):
    """A split of its own has the key and the rows that it has among the first splits."""
    found = dgp_ppl.compare("step", ["svgp"], splits=[1], seed=3, **TINY)
    assert [r["split"] for r in found.splits] == [1]
    row = next(r for r in outcome[0].splits if (r["split"], r["method"]) == (1, "svgp"))
    assert found.splits[0]["rmse"] == row["rmse"]
    for splits in (np.arange(2), (1, 0)):
        rows = dgp_ppl.compare("step", ["linear"], splits=splits, **TINY).splits
        assert [r["split"] for r in rows] == list(splits)
    assert found.record["config"]["splits"] == [1]
    for splits in ("12", 1.5):
        with pytest.raises(TypeError, match="splits is"):
            dgp_ppl.compare("step", splits=splits, **TINY)
    for splits in ([], [0, 0], [-1], [0.5]):
        with pytest.raises(ValueError, match=r"splits is .*, wanted a number of splits, or"):
            dgp_ppl.compare("step", splits=splits, **TINY)


def test_restarts_are_mixed(outcome):
    found = dgp_ppl.compare("step", ["svgp"], splits=[0], seed=3, restarts=2, **TINY)
    row, run = found.splits[0], found.fits["svgp"]
    first = next(r for r in outcome[0].splits if r["method"] == "svgp")
    assert len(run.test.members) == 2
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((run.test.mean - run.y_test) ** 2)))
    densities = [m.log_prob(run.y_test).mean() for m in run.test.members]
    assert row["restart_spread"] == pytest.approx(np.std(densities, ddof=1))
    assert densities[0] == pytest.approx(first["log_density"])
    assert densities[0] != densities[1]
    assert row["log_density"] >= np.mean(densities)  # the logarithm is concave
    assert first["restart_spread"] is None


def test_a_restart_that_fails_leaves_the_others(monkeypatch):
    fit, calls = METHODS["svgp"], []

    def second_fails(task):
        calls.append(task)
        if len(calls) == 2:
            raise UnsuitableError("the loss is not finite")
        return fit(task)

    monkeypatch.setitem(METHODS, "svgp", second_fails)
    row = dgp_ppl.compare("step", ["svgp"], splits=1, restarts=3, **TINY).splits[0]
    assert row["restart_note"] == "1 of 3 fits failed: the loss is not finite"
    assert row["restart_spread"] > 0


@pytest.mark.slow
def test_kernels_have_names():
    """They change the fits of sparse GPs and of the exact one."""
    data = dataclasses.replace(datasets.load("step"), x=np.linspace(-1, 1, 30)[:, None])
    data = dataclasses.replace(data, y=data.y[:30])
    names = ("squared_exponential", "matern32")
    found = [dgp_ppl.compare(data, ["sgpr", "gp"], splits=1, kernel=k, **TINY) for k in names]
    for first, second in zip(found[0].splits, found[1].splits, strict=True):
        assert first["log_density"] != second["log_density"]
    assert found[1].record["config"]["kernel"] == "matern32"
    with pytest.raises(ValueError, match="kernel is 'rbf', wanted one of squared_exponential, mat"):
        dgp_ppl.compare(data, kernel="rbf", **TINY)


@pytest.mark.slow
def test_dspp_as_published():
    data = dataclasses.replace(datasets.load("diabetes"), x_names=("a", "b"))
    data = dataclasses.replace(data, x=data.x[:60, :2], y=data.y[:60])
    found = dgp_ppl.compare(data, ["dspp"], splits=1, as_published=True, **TINY)
    assert np.isfinite(found.splits[0]["log_density"])
    params = found.fits["dspp"].fitted.result.params
    assert params["l1.lengthscale"].shape == (2,)


@pytest.mark.slow
def test_the_less_elbo_the_less_noise():
    """Without the ELBO draws of f explain the residuals; half of it keeps some of the noise."""
    data = datasets.load("robot_arm")
    data = dataclasses.replace(data, x=data.x[:80], y=data.y[:80])
    names = ("predictive", "dspp", "dsvi")
    found = dgp_ppl.compare(data, names, splits=1, **{**TINY, "steps": 300})
    alone, half, none = (float(found.fits[n].fitted.result.params["noise"]) for n in names)
    assert alone < 0.7 * half
    assert half < 0.9 * none


def test_nothing_is_left_half_written(outcome):
    assert not list(outcome[1].glob("*.part"))


def test_one_split_has_null_standard_errors(tmp_path):
    dgp_ppl.compare("step", ["svgp"], splits=1, out=tmp_path, **TINY)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["summary"][0]["rmse"]["se"] is None


def test_own_splits_are_used_and_python_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = datasets.load("step")
    with_splits = dataclasses.replace(step, test_index=(np.arange(7), np.arange(50, 60)))
    comparison = dgp_ppl.compare(with_splits, ["svgp"], splits=1, **TINY)
    np.testing.assert_array_equal(comparison.fits["svgp"].y_test, step.y[:7])
    assert not list(tmp_path.iterdir())


def test_random_splits_follow_the_seed():
    one, same, other = (
        dgp_ppl.compare("step", ["svgp"], splits=1, seed=s, **TINY) for s in (1, 1, 2)
    )
    numbers = [c.splits[0]["rmse"] for c in (one, same, other)]
    assert numbers[0] == numbers[1] != numbers[2]
