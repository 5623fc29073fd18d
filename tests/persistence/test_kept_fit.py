"""Fits in files: the same predictions, and errors that name what to do."""

import dataclasses
import functools
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from support import keepable
from support.data_samples import refused
from support.fits import SHALLOW, X, Y, Z, shallow
from support.helpers import KEY
from support.tables import fitted

import dgp_ppl as dgp
from dgp_ppl import kernels, models
from dgp_ppl.models import bnn, svgp
from dgp_ppl.persistence import KeptFit

RAW, TARGET = (np.asarray(a, np.float64) for a in (X * 3 + 1, Y + 5))
SCALE = dgp.Standardizer.fit(RAW, TARGET)


@functools.cache
def fit():
    return shallow()


@pytest.fixture
def path(tmp_path):
    dgp.save(
        tmp_path / "fit.dgp", svgp, SHALLOW, fit(), standardizer=SCALE, data=(RAW, TARGET),
        columns=["age"], info={"target": "price"}, preprocessing={"drop": ["id"]}, z=Z,
    )  # fmt: skip
    return tmp_path / "fit.dgp"


@pytest.fixture
def kept(path):
    return dgp.load(path)


def test_a_fit_keeps_what_it_was_given(kept, tmp_path):
    assert kept.model is svgp
    assert isinstance(kept.guide, dgp.MeanField)
    assert kept.kwargs.keys() == {"z"}
    assert kept.columns == ("age",)
    assert (kept.info, kept.preprocessing) == ({"target": "price"}, {"drop": ["id"]})
    np.testing.assert_array_equal(kept.losses, fit().losses)
    np.testing.assert_array_equal(kept.standardizer.x_loc, SCALE.x_loc)
    assert kept.params.keys() == fit().params.keys()
    for name, value in fit().params.items():
        assert np.asarray(kept.params[name]).tobytes() == np.asarray(value).tobytes()
    dataclasses.replace(kept, info={"held_out": 0.1}).save(tmp_path / "again.dgp")
    again = dgp.load(tmp_path / "again.dgp")
    assert (again.info, again.data) == ({"held_out": 0.1}, kept.data)
    assert kept.was_fitted_to(RAW, TARGET)
    assert not kept.was_fitted_to(RAW, TARGET + 1e-9)
    with pytest.raises(ValueError, match=r"no fingerprint of its data, wanted save"):
        dataclasses.replace(kept, data=None).was_fitted_to(RAW)


def test_columns_of_tables_are_taken_by_name(tmp_path):
    """Of frames of all libraries and of files; arrays are inputs already."""
    kept = KeptFit(svgp, SHALLOW, fit().params, {"z": Z}, SCALE, columns=("age",))
    columns = {"other": RAW[:, 0] * 0, "age": RAW[:, 0]}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)]
    for source in (*frames, pa.table(columns).to_reader(), tmp_path / "t.csv"):
        np.testing.assert_array_equal(kept.predict(KEY, source).x, kept.predict(KEY, RAW).x)
    refused(
        (lambda: kept.predict(KEY, pd.DataFrame({"other": [1.0]})), "no column 'age', wanted the"),
        (lambda: kept.predict(KEY, pl.LazyFrame(columns)), "polars LazyFrame", "collect it first"),
    )
    unnamed = dataclasses.replace(kept, columns=None)
    for source in (*frames, pl.LazyFrame(columns), str(tmp_path / "t.csv")):
        with pytest.raises(ValueError, match=r"predict: x is a table, and this fit has no names"):
            unnamed.predict(KEY, source)


def test_tables_pass_through_the_preprocessor():
    """Its state comes before the names of columns, by which missing cells are errors."""
    table = pd.DataFrame({"age": ["1,000", "20", None, "30"], "name": list("abcd")})
    state = fitted(table, None, drop="name").to_state()
    kept = KeptFit(svgp, SHALLOW, fit().params, {"z": Z}, preprocessing=state, columns=("age",))
    found = kept.preprocessor.inputs(table)
    assert found.tolist() == [[1000, 0], [20, 0], [30, 1], [30, 0]]
    by_name = dataclasses.replace(kept, preprocessing={"mine": 1})
    refused((lambda: by_name.predict(KEY, table), "(1 such cell)"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"), [(bnn, {"hidden": (3,)}), (models.deep_gp, {"z": (Z, Z)})]
)
def test_automatic_guides_of_numpyro_predict_after_loading(tmp_path, model, options):
    """A loaded guide has had no call with y: y is no latent site, and other rows are not its rows.

    The guide of a deep GP draws the noise of hidden layers at the rows of the fit.
    """
    guide, data = AutoNormal(model, init_scale=0.1), (X, X[:, 0])
    result = dgp.fit(KEY, model, guide, *data, steps=2, progress=False, **options)
    dgp.save(tmp_path / "fit.dgp", model, guide, result, data=data, **options)
    found = dgp.load(tmp_path / "fit.dgp").predict(KEY, X[:2], num_samples=3)
    wanted = dgp.predict(KEY, model, guide, result, X[:2], num_samples=3, **options)
    np.testing.assert_array_equal(found.mean, wanted.mean)


def test_options_of_predict_can_be_kept_and_changed(tmp_path, kept):
    p = kept.predict(KEY, X, num_samples=3, standardizer=None, noise=0.1)
    assert (p.num_samples, p.standardizer) == (3, None)
    dgp.save(tmp_path / "few.dgp", svgp, SHALLOW, fit(), num_samples=3, z=Z)
    assert dgp.load(tmp_path / "few.dgp").predict(KEY, X).num_samples == 3


def draws_of(samples):
    return dgp.Chains(samples, {"accept_prob": np.ones((2, 3))}, state=object(), steps=9)


def test_draws_of_samplers_are_kept(tmp_path):
    values = {"l1.v": np.asarray(random.normal(KEY, (2, 3, len(Z), 1)))}
    params = {n: a for n, a in fit().params.items() if ".v." not in n}
    weighted = dataclasses.replace(draws_of(values), log_weights=np.log([[1, 5, 1], [1, 1, 9]]))
    for draws in (weighted, draws_of(values), {"l1.v": jnp.asarray(values["l1.v"][0])}):
        dgp.save(tmp_path / "fit.dgp", svgp, None, params, posterior_samples=draws, z=Z)
        kept = dgp.load(tmp_path / "fit.dgp")
        p = dgp.predict(KEY, svgp, None, params, X, posterior_samples=draws, z=Z)
        q = kept.predict(KEY, X)
        np.testing.assert_array_equal(q.draws["l1.v"], p.draws["l1.v"])
    np.testing.assert_array_equal(q.mean, p.mean)
    result = dgp.MCEMResult(params, draws_of(values), np.zeros(4), 1.0)
    dgp.save(tmp_path / "fit.dgp", handlers.lift(svgp, {}), None, result, z=Z)
    kept = dgp.load(tmp_path / "fit.dgp")
    assert (kept.posterior_samples.shape, kept.posterior_samples.state) == ((2, 3), None)
    assert repr(kept).startswith("KeptFit(lift(dgp_ppl.models.svgp); ")
    assert "2 chains of 3 draws" in repr(kept)


def test_what_cannot_be_saved_leaves_the_earlier_file(path):
    before = path.read_bytes()
    unknown, frozen = r"plain has no argument 'zz', wanted some of \['x', 'y', 'z'", {"noise": 0.1}
    for arguments, error, message in (
        ({"likelihood": lambda f: f}, TypeError, r"save: kwargs\['likelihood'\] is a lambda"),
        ({"kernel": keepable.Plain()}, TypeError, r"kwargs\['kernel'\] is an object of the class"),
        ({"info": {"a": np.ones(2)}}, TypeError, r"save: info is not JSON .*wanted dicts, lists"),
        ({"preprocessing": float("nan")}, TypeError, r"save: preprocessing is not JSON"),
        ({"columns": ["a", "b"], "data": (RAW,)}, ValueError, r"columns has 2 names, wanted 1"),
        ({"model": keepable.plain, "zz": 3}, TypeError, unknown),
        ({"model": dgp.freeze(keepable.plain, frozen), "zz": 3}, TypeError, unknown),
        ({"params": {}}, ValueError, r"params is empty, wanted the params of .* MeanField"),
    ):
        arguments = {"model": svgp, "params": fit(), "z": Z} | arguments
        with pytest.raises(error, match=message):
            dgp.save(path, arguments.pop("model"), SHALLOW, arguments.pop("params"), **arguments)
    assert path.read_bytes() == before


def test_an_older_file_makes_the_predictions_of_its_time():
    """Python 3.11 with JAX 0.10.2 wrote it; its likelihood is of a module that must be trusted."""
    with pytest.raises(dgp.DataError, match=r"names code of support.*trusted=\['support'\]"):
        dgp.load(keepable.FORMAT_1)
    with pytest.raises(TypeError, match=r"wanted a list of modules: \['support'\]"):
        dgp.load(keepable.FORMAT_1, trusted="support")
    kept = dgp.load(keepable.FORMAT_1, trusted=["support"])
    assert kept.kwargs["likelihood"] is keepable.student
    assert kept.kwargs["kernel"] == kernels.Matern52.learned
    assert kept.model is models.deep_gp
    assert kept.columns == ("age", "height")
    rows = len(keepable.X_TEST)  # in one block without padding, as at its time
    p = kept.predict(random.key(1), keepable.X_TEST, num_samples=8, chunk_size=rows)
    # The noise of its eight passes was random: errors of 1e-4 of means and 4e-3 of variances.
    np.testing.assert_allclose(p.mean, kept.info["mean"], rtol=5e-4)
    np.testing.assert_allclose(p.var, kept.info["var"], rtol=2e-2)


def test_a_new_process_makes_the_same_predictions(path, tmp_path):
    """And needs no slow library for them, nor for data sets of arrays."""
    p = dgp.predict(KEY, svgp, SHALLOW, fit().params, RAW[:4], standardizer=SCALE, z=Z)
    np.savez(tmp_path / "xy.npz", X=RAW[:4], y=TARGET[:4])
    program = f"""
import sys, jax, numpy as np, dgp_ppl as dgp
dgp.datasets.names(), dgp.datasets.load("step")
x = dgp.datasets.load({str(tmp_path / "xy.npz")!r}).x
p = dgp.load({str(path)!r}).predict(jax.random.key(0), x)
np.save({str(tmp_path / "found.npy")!r}, [p.mean, p.var])
sys.exit(sum(m in sys.modules for m in ("sklearn", "pandas", "pyarrow")))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), [p.mean, p.var])
