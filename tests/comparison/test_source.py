"""`compare` of a source of rows, which are read block by block."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jax import random
from support.commands import command
from support.comparisons import TINY, no_fit

import dgp_ppl as dgp
from dgp_ppl.comparison import METHODS, _compare, local_workers
from dgp_ppl.comparison._method import methods_for
from dgp_ppl.comparison._metrics import METRICS
from dgp_ppl.datasets._source import open_source

N = 24_000  # more than are read whole
X = np.random.default_rng(0).normal(size=(N, 2)) + 5.0
Y = 3 * X[:, 0] + np.sin(X[:, 1])
LABELS = np.greater(Y, Y.mean()).astype(np.int64)
OPTIONS = {**TINY, "batch": 50, "seed": 3, "depth": 1}


def rows(y=Y):
    return dgp.Rows.from_arrays(X, y)


@pytest.fixture(scope="module")
def outcome():
    return dgp.compare(rows(), ["dsvi"], **OPTIONS)


def test_the_default_is_one_split_of_the_methods_that_stream(monkeypatch):
    monkeypatch.setattr(_compare, "run_method", no_fit)
    found = dgp.compare(rows(), **OPTIONS)
    assert [(r["split"], r["method"]) for r in found.splits] == [(0, "dsvi"), (0, "dspp")]
    assert found.record["data"]["rows"] == N


def test_held_out_rows_are_not_fitted(outcome):
    run = outcome.fits["dsvi"]
    held_out = set(run.y_test)
    assert (len(held_out), run.num_data, len(run.y)) == (2400, 21_600, 10_000)
    assert held_out.isdisjoint(run.y)
    train = [i for i, y in enumerate(Y) if y not in held_out]
    wanted = dgp.Standardizer.fit(X[train], Y[train])
    np.testing.assert_allclose(run.standardizer.x_loc, wanted.x_loc, rtol=1e-12)
    np.testing.assert_allclose(run.standardizer.y_scale, wanted.y_scale, rtol=1e-12)
    row = outcome.splits[0]
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((run.test.mean - run.y_test) ** 2)))


def test_the_bound_is_that_of_all_training_rows(outcome):
    run = outcome.fits["dsvi"]
    fitted, scale = run.fitted, run.standardizer
    train = ~np.isin(Y, run.y_test)
    x, y = scale.inputs(X[train]), scale.outputs(Y[train])
    call = (random.key(0), fitted.model, fitted.guide, fitted.result.params, x, y)
    sampled = {"batch_size": 10_000, "num_draws": 20}
    _, error = dgp.evaluate(*call, **sampled, **fitted.kwargs)  # of the row's bound
    wanted, _ = dgp.evaluate(*call, **fitted.kwargs)
    assert 0 < error < 0.01 * abs(wanted)
    assert fitted.elbo_per_datum == pytest.approx(wanted / len(y), abs=4 * error / len(y))


@pytest.mark.slow
@pytest.mark.parametrize("method", methods_for("regression", tuple(METHODS), streams=True))
def test_every_method_that_streams(method):
    (row,) = dgp.compare(rows(), [method], **OPTIONS | {"depth": 2}).splits
    assert "error" not in row
    assert all(np.isfinite(row[m]) for m in METRICS["regression"][:4])


@pytest.mark.slow
def test_classes_and_other_models():
    several = np.digitize(Y, [12, 15, 18])
    for y, options, metric in (
        (LABELS, {}, "accuracy"),
        (several, {"categorical": "y"}, "accuracy"),
        (Y, {"model": "diff_gp"}, "rmse"),
    ):
        (row,) = dgp.compare(rows(y), ["dsvi"], **OPTIONS, **options).splits
        assert np.isfinite(row[metric])


def test_what_a_source_cannot_do_is_refused():
    for error, options, words in (
        (ValueError, {"methods": ["sgpr", "dsvi"]}, r"\['sgpr'\].*read block by block.*dsvi, dspp"),
        (dgp.DataError, {"category_kernel": True}, "category_kernel is True, which takes a table"),
        (dgp.DataError, {"target": "z"}, "Rows"),
        (dgp.DataError, {"drop": ["x0"]}, "Rows"),
        (dgp.DataError, {"categorical": ["x0"]}, "Rows"),
        (dgp.DataError, {"split_key": "s"}, "Rows"),
    ):
        with pytest.raises(error, match=words):
            dgp.compare(rows(), **options, **OPTIONS)


@pytest.mark.slow
def test_workers_read_the_files(outcome, tmp_path):
    for name, array in (("x", X), ("y", Y)):
        np.save(tmp_path / f"{name}.npy", array)
    mapped = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    source = dgp.Rows.from_arrays(*mapped)
    found = dgp.compare(source, ["dsvi"], executor=local_workers(1), **OPTIONS)
    for row, wanted in zip(found.splits, outcome.splits, strict=True):
        assert row | {"seconds": 0} == wanted | {"seconds": 0}


@pytest.mark.slow
def test_a_folder_on_the_command_line(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y}), folder / "0.parquet")
    small = ["--target", "y", "--steps", 4, "--inducing", 4, "--samples", 4, "--batch", 50]
    code, out, _ = command("fit", "parts/", *small, folder=tmp_path)
    assert code == 0
    assert "2,400 of 24,000 rows held out" in " ".join(out.split())
    kept = dgp.load(tmp_path / "parts.dgp")
    assert kept.predict(random.key(0), X[:3]).mean.shape == (3,)
    args = ["parts", *small, "--methods", "dsvi", "--splits", 2, "--quiet", "--out", "r"]
    for more in ([], ["--resume"]):
        assert command("compare", *args, *more, folder=tmp_path)[0] == 0
    gp = [*small, "--method", "gp", "--out", "gp.dgp"]
    code, _, err = command("fit", "parts", *gp, folder=tmp_path)
    assert code == 2
    assert "read block by block" in err


def test_held_out_rows_are_checked_before_the_fit():
    held_out = open_source(rows()).test_rows(3, 0)
    for name, bad in (("target 'y'", int(held_out[7])), ("column 'x0'", int(held_out[2]))):
        x, y = X.copy(), Y.copy()
        (x if "x" in name else y)[bad] = np.nan
        with pytest.raises(dgp.DataError, match=rf"{name}: nan in row {bad} "):
            dgp.compare(dgp.Rows.from_arrays(x, y), ["dsvi"], **OPTIONS)
