"""Predictions of a source, written some rows at a time."""

import jax
import numpy as np
import numpyro.distributions as dist
import pyarrow.parquet as pq
import pytest
from support.fits import SHALLOW
from support.streams import KEY, N, X, Y, Z, streamed

import dgp_ppl as dgp
from dgp_ppl.models import svgp
from dgp_ppl.prediction import summary_columns, write_predictions

ROWS = dgp.Rows.from_arrays(X, Y)


@pytest.fixture(scope="module")
def fit():
    return streamed(10)


def test_the_predictions_are_those_of_predict(fit, tmp_path):
    """One layer has no random passes, so blocks do not matter."""
    scale = dgp.Standardizer.fit(X, Y)
    options = {"z": Z, "standardizer": scale, "num_samples": 1}
    whole = dgp.predict(KEY, svgp, SHALLOW, fit, X, **options)
    for name, size in (("p.parquet", 200), ("p.parquet", N), ("p.csv", 300)):
        path = tmp_path / name
        write_predictions(
            path, KEY, svgp, SHALLOW, fit, ROWS, block_rows=size, quantiles=[0.1], **options
        )
        if name.endswith("csv"):
            table = np.genfromtxt(path, delimiter=",", names=True)
        else:
            table = pq.read_table(path)
            assert table.column_names == ["mean", "sd", "q10"]
        np.testing.assert_allclose(table["mean"], whole.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(table["sd"], np.sqrt(whole.var), rtol=1e-5)
        np.testing.assert_allclose(table["q10"], whole.quantile(0.1), rtol=1e-4, atol=1e-5)


def test_several_outputs_and_classes():
    guide = dgp.MeanField(svgp)
    two = dgp.predict(KEY, svgp, guide, streamed_of(guide, np.c_[Y, Y], out=2), X[:4], z=Z, out=2)
    found = summary_columns(two, [0.5])
    assert list(found) == ["mean_0", "mean_1", "sd_0", "sd_1", "q50_0", "q50_1"]
    np.testing.assert_array_equal(found["sd_1"], np.sqrt(two.var[:, 1]))

    guide = dgp.MeanField(svgp)
    options = {"out": 3, "likelihood": categorical}
    fit = streamed_of(guide, np.arange(N) % 3, **options)
    some = dgp.predict(KEY, svgp, guide, fit, X[:4], z=Z, **options)
    found = summary_columns(some, classes=["a", "b", "c"])
    assert list(found) == ["class", "P(a)", "P(b)", "P(c)"]
    assert found["class"][0] == "abc"[some.probabilities[0].argmax()]


def categorical(f):
    return dist.Categorical(logits=f)


def streamed_of(guide, y, **options):
    rows = dgp.Rows.from_arrays(X, y)
    fixed = {"z": Z, "batch_size": 10, "steps": 2, "progress": False}
    return dgp.fit(KEY, svgp, guide, rows, **fixed, **options)


def test_what_is_refused(fit, tmp_path):
    path, x = tmp_path / "p.parquet", X.copy()
    x[301] = np.inf
    path.write_text("earlier")
    with pytest.raises(dgp.DataError, match=r"x is NaN or infinite in 1 of 200 rows \[301\]"):
        write_predictions(
            path, KEY, svgp, SHALLOW, fit, dgp.Rows.from_arrays(x), block_rows=200, z=Z
        )
    assert path.read_text() == "earlier"
    with pytest.raises(TypeError, match="rows is a ndarray, wanted Rows"):
        write_predictions(path, KEY, svgp, SHALLOW, fit, X, z=Z)
    with pytest.raises(ValueError, match=r"ends in '\.txt', wanted \.parquet or \.csv"):
        write_predictions(tmp_path / "p.txt", KEY, svgp, SHALLOW, fit, ROWS, z=Z)
    with pytest.raises(TypeError, match="key is 0"):
        write_predictions(path, 0, svgp, SHALLOW, fit, ROWS, z=Z)
    huge = jax.tree.map(lambda a: a, fit.params) | {"noise": np.float32(1e30)}
    with pytest.raises(dgp.DataError, match="predictions are not finite in 503 of 503 rows"):
        write_predictions(path, KEY, svgp, SHALLOW, huge, ROWS, z=Z)
