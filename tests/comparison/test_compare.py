"""`compare`: its results and their files, and errors."""

import dataclasses
import json
from concurrent.futures import Executor

import numpy as np
import pytest
import xarray
from support.comparisons import TINY, compared
from support.helpers import compiled

import dgp_ppl
from dgp_ppl import datasets
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison import METHODS
from dgp_ppl.comparison._metrics import METRICS


def few(name, rows, columns=None):
    """Return the first rows and columns of a data set."""
    data = datasets.load(name)
    x = data.x[:rows, :columns]
    return dataclasses.replace(data, x=x, y=data.y[:rows], x_names=data.x_names[: x.shape[1]])


def test_results_json_has_the_documented_form():
    comparison, out = compared()
    record = json.loads((out / "results.json").read_text())
    assert set(record) == {"data", "config", "versions", "splits", "summary"}
    assert [(r["split"], r["method"]) for r in record["splits"]] == [
        (s, m) for s in (0, 1) for m in ("sgpr", "dsvi")
    ]
    assert all(set(r) == {"split", "method", *METRICS["regression"]} for r in record["splits"])
    assert all(set(r) == {"method", *METRICS["regression"]} for r in record["summary"])
    config = record["config"]
    assert (config["inducing"], config["likelihood"], config["elbo_share"]) == (4, "gaussian", 0.5)
    assert {"dgp_ppl", "jax", "numpyro", "python"} <= set(record["versions"])
    assert record["splits"] == comparison.splits
    for row in comparison.summary:
        values = [r["rmse"] for r in comparison.splits if r["method"] == row["method"]]
        assert row["rmse"]["mean"] == pytest.approx(np.mean(values))
        assert row["rmse"]["se"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(2))


def test_metrics_and_scales_are_of_their_rows():
    """The prediction at the held-out rows; the scale of the training rows alone."""
    comparison, _ = compared()
    run, row = comparison.fits["dsvi"], comparison.splits[1]
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((run.test.mean - run.y_test) ** 2)))
    assert row["log_density"] == pytest.approx(run.test.log_prob(run.y_test).mean())
    scale = run.standardizer
    np.testing.assert_allclose([scale.y_loc, scale.y_scale], [run.y.mean(), run.y.std()])
    np.testing.assert_allclose(scale.x_loc, run.x.mean(axis=0))
    np.testing.assert_allclose(scale.x_scale, run.x.std(axis=0))
    assert (len(run.y), len(run.y_test)) == (90, 10)


def test_trees_are_written_whole():
    _, out = compared()
    assert not list(out.glob("*.part"))
    for method in ("sgpr", "dsvi"):
        with xarray.open_datatree(out / f"{method}.nc", engine="h5netcdf") as tree:
            groups = {"posterior", "posterior_predictive", "log_likelihood", "observed_data"}
            assert groups <= set(tree.children)
            assert tree["log_likelihood"]["y"].sizes == {"chain": 1, "draw": 40, "data": 90}
            assert tree["predictions"]["y"].sizes["test"] == 10
            assert tree["sample_stats"]["loss"].size == 4
            assert np.isfinite(tree["log_likelihood"]["y"]).all()
            assert json.loads(tree.attrs["config"])["steps"] == 4


@pytest.mark.slow
def test_classes(tmp_path):
    """Classification from the data to the files."""
    for data, likelihood in (("breast_cancer", "logit"), ("iris", None), ("iris", "robust_max")):
        out = tmp_path / f"{data}-{likelihood}"
        options = {"splits": 1, "likelihood": likelihood, "out": out}
        found = dgp_ppl.compare(data, report=dgp_ppl.report.write_figures, **options, **TINY)
        assert [row["method"] for row in found.splits] == ["dsvi", "dspp"]
        assert found.record["config"]["likelihood"] == likelihood or likelihood is None
        for row in found.splits:
            run = found.fits[row["method"]]
            assert set(row) == {"split", "method", *METRICS[run.data.task]}
            held = run.test.probabilities
            np.testing.assert_allclose(held.sum(axis=1), 1.0, rtol=1e-12)
            assert row["accuracy"] == (held.argmax(axis=1) == run.y_test).mean()
            assert row["log_loss"] == pytest.approx(-run.test.log_prob(run.y_test).mean(), rel=1e-3)
            assert (run.standardizer.y_loc, run.standardizer.y_scale) == (0.0, 1.0)
        assert {p.name for p in out.iterdir()} == {
            "results.json", "training.png", "reliability.png", "dsvi.nc", "dspp.nc",
        }  # fmt: skip
        with xarray.open_datatree(out / "dsvi.nc", engine="h5netcdf") as tree:
            assert set(np.unique(tree["posterior_predictive"]["y"])) <= set(range(held.shape[1]))


def test_pixels_are_scaled_together(monkeypatch):
    """One location and scale for all pixels, so that nearly constant ones stay nearly constant."""
    seen, data = [], few("digits", 100)

    def look(task):
        seen.append(np.asarray(task.x))
        raise UnsuitableError("seen")

    monkeypatch.setitem(METHODS, "dsvi", look)
    dgp_ppl.compare(data, ["dsvi"], splits=1, **TINY)
    raw = data.x[datasets.splits(data, 1, 0)[0][0]]
    np.testing.assert_allclose(seen[0], (raw - raw.mean()) / raw.std(), atol=1e-5)


def test_errors_name_the_argument_and_the_cure(tmp_path):
    for data, options, words in (
        ("breast_cancer", {"methods": ["dsvi", "sgpr"]}, r"has \['sgpr'\].*noise.*some of dsvi"),
        ("breast_cancer", {"likelihood": "softmax"}, r"likelihood is 'softmax'.*: probit, logit"),
        ("step", {"methods": ["magic"]}, "no method 'magic', wanted one of sgpr, dsvi"),
        ("step", {"methods": ["dsvi", "dsvi"]}, "methods has 'dsvi,dsvi', wanted different"),
        ("step", {"splits": "12"}, "splits is"),
        ("step", {"splits": 1.5}, "splits is"),
        ("step", {"splits": [0, 0]}, "splits is .*, wanted a number of splits, or"),
        ("step", {"splits": [-1]}, "splits is .*, wanted a number of splits, or"),
        ("step", {"splits": []}, "splits is .*, wanted a number of splits, or"),
        ("step", {"seed": -1}, "seed is -1, wanted at least 0"),
        ("step", {"seed": 2**32}, "seed is 4294967296, wanted at least 0 and below"),
        ("step", {"report": print}, "report is .* and out is None, wanted a function"),
        ("step", {"report": True, "out": tmp_path}, "report is True.*dgp_ppl.report.write_report"),
        ("step", {"resume": True}, "resume is True, out is None"),
        ("step", {"executor": 4}, "executor is 4, wanted an Executor"),
        ("step", {"executor": Executor(), "in_one_program": True},
         "in_one_program is True and executor"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=f"compare: .*{words}"):
            dgp_ppl.compare(data, **(TINY | options))
    assert not list(tmp_path.iterdir())


def test_splits_by_their_numbers(caplog):
    """A split of its own has the key, the rows and the program that it has with other splits."""
    found = dgp_ppl.compare("step", ["linear"], splits=[1], seed=3, **TINY)
    (row,) = found.splits
    assert found.record["config"]["splits"] == [1]
    rows, options = [], {"splits": np.array([1, 0]), "seed": 3, **TINY}
    again = lambda: rows.extend(dgp_ppl.compare("step", ["linear"], **options).splits)  # noqa: E731
    assert "jit(value)" not in compiled(caplog, again)
    assert [r["split"] for r in rows] == [1, 0]
    assert row["rmse"] == rows[0]["rmse"] != rows[1]["rmse"]


@pytest.mark.slow
def test_restarts_are_mixed(monkeypatch):
    found = dgp_ppl.compare("step", ["dsvi"], splits=[0], seed=3, restarts=2, **TINY)
    row, run = found.splits[0], found.fits["dsvi"]
    first = next(r for r in compared()[0].splits if r["method"] == "dsvi")
    assert len(run.test.members) == 2
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((run.test.mean - run.y_test) ** 2)))
    densities = [m.log_prob(run.y_test).mean() for m in run.test.members]
    assert row["restart_spread"] == pytest.approx(np.std(densities, ddof=1))
    assert densities[0] == pytest.approx(first["log_density"])
    assert densities[0] != densities[1]
    assert row["log_density"] >= np.mean(densities)  # the logarithm is concave
    assert first["restart_spread"] is None

    fit, calls = METHODS["dsvi"], []

    def second_fails(task):
        calls.append(task)
        if len(calls) == 2:
            raise UnsuitableError("the loss is not finite")
        return fit(task)

    monkeypatch.setitem(METHODS, "dsvi", second_fails)
    row = dgp_ppl.compare("step", ["dsvi"], splits=[0], seed=3, restarts=3, **TINY).splits[0]
    assert row["restart_note"] == "1 of 3 fits failed: the loss is not finite"
    assert row["restart_spread"] > 0


@pytest.mark.slow
def test_the_less_elbo_the_less_noise():
    """Without the ELBO draws of f explain the residuals; half of it keeps some of the noise."""
    options = {**TINY, "steps": 300, "splits": 1}
    data, noise = few("robot_arm", 80), {}
    for share in (0.0, 0.5, 1.0):
        found = dgp_ppl.compare(data, ["dspp"], elbo_share=share, **options)
        noise[share] = float(found.fits["dspp"].fitted.result.params["noise"])
    assert noise[0.0] < 0.7 * noise[0.5]
    assert noise[0.5] < 0.9 * noise[1.0]


def test_own_splits_are_used_and_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = datasets.load("step")
    with_splits = dataclasses.replace(step, test_index=(np.arange(7), np.arange(50, 60)))
    comparison = dgp_ppl.compare(with_splits, ["linear"], splits=1, **TINY)
    np.testing.assert_array_equal(comparison.fits["linear"].y_test, step.y[:7])
    assert not list(tmp_path.iterdir())
