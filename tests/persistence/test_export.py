"""Exported programs: agreement with `predict`, and independence of this library."""

import functools
import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from support import keepable
from support.exports import call, read
from support.fits import SHALLOW, X, Y, Z, shallow
from support.helpers import KEY
from support.pages import blocks

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.datasets import Preprocessor
from dgp_ppl.models import svgp

RAW, TARGET = np.asarray(X) * 3 + 20, np.asarray(Y) * 40 + 5
SCALE = dgp.Standardizer.fit(RAW, TARGET)
LEVELS = [0.05, 0.5, 0.95]


@functools.cache
def prediction():
    return dgp.predict(
        KEY, svgp, SHALLOW, shallow().params, RAW[:1], standardizer=SCALE, z=Z, num_samples=4
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "price.jaxprogram"
    dgp.export(path, prediction(), columns=["age"])
    return path


def test_it_agrees_with_predict_at_any_number_of_rows(path):
    header, found = read(path)[0], call(path, RAW.astype("float32"))
    scale = SCALE.y_scale
    for i in (0, 19):
        p = dgp.predict(
            KEY, svgp, SHALLOW, shallow().params, RAW[i : i + 1], standardizer=SCALE, z=Z,
            num_samples=4,
        )  # fmt: skip
        for name, values, units in (
            ("mean", p.mean[0], scale), ("var", p.var[0], scale**2),
            ("quantiles", p.quantile(LEVELS)[:, 0], scale),
        ):  # fmt: skip
            np.testing.assert_allclose(found[name][i] / units, values / units, atol=1e-5)
    two = call(path, RAW[:2].astype("float32"))
    np.testing.assert_allclose(two["mean"], found["mean"][:2], rtol=1e-6)
    assert header["outputs"] == {"mean": [32], "var": [32], "quantiles": [32, 3]}
    assert header["inputs"] == [{"shape": [32, 1], "dtype": "float32"}]
    assert (header["quantiles"], header["columns"]) == (LEVELS, ["age"])
    assert (header["passes"], header["platforms"]) == (4, ["cpu", "cuda"])


@pytest.mark.slow
def test_it_runs_with_jax_alone(path, tmp_path):
    np.save(tmp_path / "x.npy", np.resize(RAW, (32, 1)).astype("float32"))
    program = f"""
import sys
for name in ("dgp_ppl", "numpyro", "equinox", "optax", "sklearn"):
    sys.modules[name] = None
import json, zipfile, jax.export, numpy as np
with zipfile.ZipFile({str(path)!r}) as file:
    program = jax.export.deserialize(bytearray(file.read("program")))
np.save({str(tmp_path / "mean.npy")!r}, program.call(np.load({str(tmp_path / "x.npy")!r}))["mean"])
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    found = call(path, RAW[:3].astype("float32"))["mean"]
    np.testing.assert_allclose(np.load(tmp_path / "mean.npy")[:3], found, rtol=1e-6)


def classes(x, y=None, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z, out=3)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), likelihoods.softmax), obs=y)


def exposed(x, exposure, y=None, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z)
    with dgp.minibatch(x, exposure, y) as (x, exposure, y):
        rate = lambda f: dist.Poisson(exposure * jnp.exp(f))  # noqa: E731
        numpyro.sample("y", dgp.observe(f(x), rate), obs=y)


@pytest.mark.slow
def test_classes_and_arguments_with_a_value_per_row(tmp_path):
    """Classes have probabilities and no quantiles; values of rows are inputs of the program."""
    p = dgp.predict(KEY, classes, None, {}, Z, z=Z, num_samples=3, chunk_size=1)
    dgp.export(tmp_path / "p", p)
    assert read(tmp_path / "p")[0]["quantiles"] == []
    found = call(tmp_path / "p", np.asarray(Z, np.float32))["probabilities"]
    exposure = np.linspace(1, 2, len(Z)).astype(np.float32)
    p = dgp.predict(KEY, exposed, None, {}, Z, exposure, z=Z, num_samples=3)
    dgp.export(tmp_path / "p", p, quantiles=[0.5])
    counts = call(tmp_path / "p", np.asarray(Z, np.float32), exposure)
    for i, row in enumerate(Z[:, None]):
        p = dgp.predict(KEY, classes, None, {}, row, z=Z, num_samples=3)
        np.testing.assert_allclose(found[i], p.probabilities[0], atol=1e-5)
        p = dgp.predict(KEY, exposed, None, {}, row, exposure[i : i + 1], z=Z, num_samples=3)
        np.testing.assert_allclose(counts["mean"][i], p.mean[0], rtol=1e-4)
        np.testing.assert_allclose(counts["quantiles"][i, 0], p.quantile(0.5)[0])


@pytest.mark.slow
def test_two_layers_with_a_coupled_guide(tmp_path):
    kept = dgp.load(keepable.FORMAT_1, ["support"])
    predict = functools.partial(kept.predict, KEY, num_samples=8)
    dgp.export(tmp_path / "p", predict(keepable.X_TEST))
    found = call(tmp_path / "p", keepable.X_TEST.astype(np.float32))
    scale = kept.standardizer.y_scale
    for i in range(len(keepable.X_TEST)):
        p = predict(keepable.X_TEST[i : i + 1])
        assert found["mean"][i] / scale == pytest.approx(p.mean[0] / scale, abs=1e-5)
        assert found["var"][i] / scale**2 == pytest.approx(p.var[0] / scale**2, abs=1e-5)
        np.testing.assert_allclose(
            found["quantiles"][i] / scale, p.quantile(LEVELS)[:, 0] / scale, atol=1e-5
        )


def host_mean(x):
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((1, 1), x.dtype), x)


def without_quantiles(x, y=None, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z, out=2)
    with dgp.minibatch(x, y) as (x, y):
        joint = lambda f: dist.MultivariateNormal(f, jnp.eye(2))  # noqa: E731
        numpyro.sample("y", dgp.observe(f(x), joint), obs=y)


def test_a_raw_row_becomes_inputs_by_the_plan_of_the_header(tmp_path):
    """By the function of the documentation."""
    table = pd.DataFrame({
        "m2": [1421.5, 950, np.nan, 800.5], "sold": ["2024-01-31", "2024-02-01", "", "2024-03-01"],
        "state": ["late", "missing", "ok", None], "new": ["a", "b", " a", None], "n": [1, 2, 3, 2],
    })  # fmt: skip
    columns = Preprocessor.fit(table, categorical=["n", "state"])
    x = columns.inputs(table)
    z = np.zeros((1, x.shape[1]), np.float32)
    dgp.export(tmp_path / "p", dgp.predict(KEY, svgp, None, {}, x, z=z), columns=columns)
    page = (Path(__file__).parents[2] / "docs" / "keep_a_fit.md").read_text()
    names = {"np": np}
    exec(next(b for b in blocks(page, "python") if b.startswith("def encode")), names)
    header, _ = read(tmp_path / "p")
    found = [names["encode"](row, header["plan"]) for row in table.to_dict("records")]
    np.testing.assert_array_equal(found, x.astype(np.float32))
    assert header["columns"] == list(columns.names)
    with pytest.raises(ValueError, match="state is 'black', wanted one of"):
        names["encode"]({**table.iloc[0], "state": "black"}, header["plan"])


def test_what_cannot_be_exported(tmp_path, monkeypatch):
    """The error names the argument and the cure, and there is no file."""
    predict = functools.partial(dgp.predict, KEY, z=Z, num_samples=2)
    on_host = predict(svgp, SHALLOW, shallow().params, Z[:1], mean=host_mean)
    wide = dgp.Standardizer(np.array([1.6e9]), np.array([1e5]), 0.0, 1.0)
    blurred = predict(svgp, SHALLOW, shallow().params, [[1.6e9]], standardizer=wide)
    scale = dgp.Standardizer(np.zeros(1), np.ones(1), 1e5, 1e-2)
    high = predict(svgp, SHALLOW, shallow().params, [[0.0]], standardizer=scale)
    for p, options, message in (
        (high, {}, r"y has mean 100000.0 and .* would blur"),
        (prediction(), {"quantiles": [0.0]}, r"quantiles is \[0.0\], wanted levels strictly"),
        (prediction(), {"quantiles": 0.5}, r"quantiles is 0.5"),
        (prediction(), {"columns": ["a", "b"]}, r"columns is .*, wanted a list of 1 names"),
        (prediction(), {"columns": ...}, r"columns is Ellipsis, wanted a list of 1 names"),
        (prediction(), {"platforms": ["abacus"]}, r"platforms is \['abacus'\], wanted some"),
        (on_host, {}, r"JAX cannot export .*platforms=\('cpu',\)"),
        (blurred, {}, r"column 0 of x has mean 1.6e\+09 and .* would blur"),
        (predict(without_quantiles, None, {}, Z), {}, r"has no quantiles; leave them out"),
        ({}, {}, r"prediction is a dict, wanted a Prediction"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"export: .*{message}"):
            dgp.export(tmp_path / "p", p, **options)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("dgp_ppl.persistence._export.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"wanted flatbuffers; python -m pip install"):
        dgp.export(tmp_path / "p", prediction())
