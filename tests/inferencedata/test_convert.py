"""Trees of guides, chains and the prior: their groups and values."""

import json

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray
from numpyro import handlers
from support.helpers import slow
from support.trees import KEY, X, Y, converted, deep, fitted

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods, models
from dgp_ppl._errors import DataError


@pytest.fixture(scope="module")
def stored():
    """A fit, and its tree with all groups."""
    scale = dgp.Standardizer.fit(X, Y)
    x, y = scale.inputs(X), scale.outputs(Y)
    guide = dgp.MeanField(deep)
    result = dgp.fit(KEY, deep, guide, x, y, steps=7, progress=False)
    return result, dgp.to_inferencedata(
        KEY, deep, guide, result.params, X, Y, num_samples=60, num_prior_samples=4, passes=3,
        standardizer=scale, test=(X[:4], Y[:4]), result=result, units={"y": "m"},
        coords={"data": np.arange(23) + 100, "input": ["east", "north"]}, attrs={"config": "{}"},
    )  # fmt: skip


def test_every_group_has_named_dimensions_labels_and_units(stored):
    result, tree = stored
    dims = {
        f"{group}/{name}": array.dims
        for group in tree.children
        for name, array in tree[group].data_vars.items()
        if group != "fit"
    }
    own = ("chain", "draw")
    latent = {
        "l1.v": (*own, "l1.inducing", "l1.output"),
        "l2.v": (*own, "l2.inducing", "l2.output"),
        "noise": own,
    }
    assert dims == {
        **{f"{group}/{n}": d for group in ("posterior", "prior") for n, d in latent.items()},
        "posterior_predictive/y": (*own, "data"),
        "prior_predictive/y": (*own, "data"),
        "log_likelihood/y": (*own, "data"),
        "observed_data/y": ("data",),
        "constant_data/x": ("data", "input"),
        "predictions/y": (*own, "test"),
        "predictions_constant_data/x": ("test", "input"),
        "predictions_constant_data/y": ("test",),
        "sample_stats/lp": own,
        "sample_stats/log_q": own,
        "sample_stats/log_weight": own,
        "sample_stats/loss": ("step",),
        "constant_data/y_loo_correction": ("data",),
    }
    assert dict(tree["posterior"].sizes) | {"chain": 1, "draw": 60} == tree["posterior"].sizes
    assert tree["prior"].sizes["draw"] == 4
    assert tree["log_likelihood"]["data"].values.tolist() == list(range(100, 123))
    assert tree["constant_data"]["input"].values.tolist() == ["east", "north"]
    assert tree["observed_data"]["y"].attrs["units"] == "m"
    assert tree["predictions"]["y"].attrs["units"] == "m"
    assert tree["log_likelihood"]["y"].attrs["units"] == "nats"
    assert tree["sample_stats"]["loss"].attrs["units"] == "nats"
    assert "whitened" in tree["posterior"]["l1.v"].attrs["units"]
    assert tree["log_likelihood"].attrs["passes"] == 3
    assert tree.attrs["config"] == "{}"
    assert json.loads(tree.attrs["configuration"])["passes"] == 3
    assert tree["fit"].attrs["steps"] == 7
    assert (tree.attrs["model"], tree.attrs["guide"]) == ("deep", "MeanField")
    assert tree.attrs["numpyro_version"] == numpyro.__version__
    assert tree.attrs["inference_library_version"] == dgp.__version__
    np.testing.assert_allclose(tree["observed_data"]["y"], Y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(tree["constant_data"]["x"], X)
    np.testing.assert_array_equal(tree["sample_stats"]["loss"], result.losses)


@pytest.mark.slow
def test_a_minibatch_of_the_model_changes_nothing():
    whole = converted(deep, X, Y)
    guide, params = fitted(deep, X, Y)
    for size in (5, 23):
        tree = dgp.to_inferencedata(
            KEY, deep, guide, params, X, Y, num_samples=6, num_prior_samples=4, passes=3,
            batch_size=size,
        )  # fmt: skip
        xarray.testing.assert_equal(tree["log_likelihood"], whole["log_likelihood"])
        xarray.testing.assert_equal(tree["observed_data"], whole["observed_data"])


@pytest.mark.slow
def test_missing_rows_are_told_apart():
    mask = np.ones(23, bool)
    mask[[2, 20]] = False
    y = np.where(mask, Y, np.nan)
    tree = converted(deep, X, y, mask=mask)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "y.seen")
    assert tree["log_likelihood"]["y.seen"].values.tolist() == np.flatnonzero(mask).tolist()
    assert np.isfinite(tree["log_likelihood"]["y"]).all()
    np.testing.assert_allclose(tree["observed_data"]["y"], Y[mask], rtol=1e-6)
    missing = tree["posterior_predictive"]["y_missing"]
    assert missing.dims == ("chain", "draw", "y.missing")
    assert missing["y.missing"].values.tolist() == [2, 20]
    assert np.isfinite(missing).all()
    assert tree["constant_data"]["x"].shape == (23, 2)
    guide, params = fitted(deep, X, Y)
    with pytest.raises(ValueError, match=r"not a number in 2 of 23 rows, the first.*2.*mask"):
        dgp.to_inferencedata(KEY, deep, guide, params, X, y, num_samples=3)


@pytest.mark.slow
def test_numpyros_masks_are_observes():
    """A mask inside or outside `observe` gives the same tree, under a guide too."""
    keep = np.arange(23) % 5 > 0

    def masked(x, y=None, inner=None, outer=True):
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), X[::5])
        with dgp.minibatch(x, y) as (x, y), handlers.mask(mask=outer):
            observed = dgp.observe(f(x), lambda f: dist.StudentT(4.0, f, 0.3), mask=inner)
            numpyro.sample("y", observed, obs=y)

    guide = dgp.Decoupled(masked, X[::3])  # v does not determine its mean
    most, more = keep | (np.arange(23) == 5), keep | (np.arange(23) == 10)
    how = {"inner": keep}, {"outer": keep}, {"inner": most, "outer": more}
    one, *others = (converted(masked, X, Y, guide=guide, **options) for options in how)
    for other in others:
        for group in ("log_likelihood", "posterior_predictive"):
            np.testing.assert_allclose(one[group]["y"], other[group]["y"], rtol=1e-5)


def latent(x, y, seen=None):
    return models.gplvm(x, y, seen, z=(jnp.zeros((4, 2)) + jnp.arange(4.0)[:, None],), out=3)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [slow("given"), "integrated"])
def test_latent_inputs_and_missing_entries(rows):
    y = np.stack([np.sin(X[:, 0]), X[:, 1], X[:, 0]], axis=1)
    seen = np.ones(y.shape, bool)
    seen[3, 1] = seen[7] = False
    y = np.where(seen, y, np.nan)
    tree = converted(latent, None, y, seen, options={"latent_rows": rows})
    assert tree["posterior"]["latent"].dims == ("chain", "draw", "data", "latent.dim_1")
    assert tree["posterior_predictive"]["y"].dims == ("chain", "draw", "y.seen", "output")
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "y.seen")
    assert tree["log_likelihood"]["y"].shape == (1, 6, 22)  # without row 7
    assert tree["log_likelihood"].attrs["latent_rows"] == rows
    observed = tree["observed_data"]["y"].values
    np.testing.assert_allclose(observed, np.delete(y, 7, axis=0), rtol=1e-6)
    constant = tree["constant_data"].data_vars
    assert set(constant) == {"seen"} | ({"y_loo_correction"} if rows == "integrated" else set())
    # In chunks, each row keeps its latent inputs.
    guide, params = fitted(latent, None, y, seen)
    wide = {n: a for n, a in params.items() if n != "latent_auto_scale"}
    wide["latent_auto_scale"] = 1e-3 * params["latent_auto_scale"]
    means = []
    for size in (None, 8):
        tree = dgp.to_inferencedata(
            KEY, latent, guide, wide, None, y, seen, num_samples=50, num_prior_samples=0,
            chunk_size=size, passes=4, latent_rows=rows,
        )  # fmt: skip
        means.append(tree["log_likelihood"]["y"].mean(("chain", "draw")).values)
    if rows == "given":  # the two differ by the Monte Carlo error of 50 x 4 draws
        assert np.abs(means[0] - means[1]).max() < 0.2 * means[0].std()


def test_the_prior_alone():
    tree = dgp.to_inferencedata(KEY, deep, None, {}, X, Y, num_prior_samples=500)
    assert set(tree.children) == {"prior", "prior_predictive", "observed_data", "constant_data"}
    v = tree["prior"]["l1.v"].values
    assert abs(v.var() - 1) < 5 * np.sqrt(2 / v.size)
    assert abs(v.mean()) < 5 / np.sqrt(v.size)


@pytest.mark.wrong_types
def test_bad_arguments_are_named():
    guide, params = dgp.MeanField(deep), {}
    wrong = [
        ({"num_samples": 0}, "num_samples is 0"),
        ({"passes": 0}, "passes is 0"),
        ({"latent_rows": "all"}, "latent_rows is 'all'"),
        ({"posterior_samples": {"l1.v": np.zeros((3, 5, 2))}}, "wanted draws from one of them"),
    ]
    for options, words in wrong:
        with pytest.raises(ValueError, match=words):
            dgp.to_inferencedata(KEY, deep, guide, params, X, Y, **options)
    with pytest.raises(ValueError, match=r"no draws of 'noise'.*wanted all of"):
        dgp.to_inferencedata(
            KEY, deep, None, params, X, Y, posterior_samples={"l1.v": np.zeros((3, 5, 2))}
        )
    with pytest.raises(ValueError, match="wanted one of them"):
        dgp.to_inferencedata(KEY, deep, None, params, X, Y, num_prior_samples=0)

    count, kw = np.arange(23.0), {"z": X[:5], "likelihood": likelihoods.PoissonLog}
    for y, y_test in ((-count, None), (count, -count)):
        with pytest.raises(DataError, match=r"is outside of .* PoissonLog .* 22 of 23 rows \[1,"):
            dgp.to_inferencedata(KEY, models.svgp, None, {}, X, y, test=(X, y_test), **kw)

    def nothing(x):
        numpyro.sample("w", dist.Normal(0, 1))

    with pytest.raises(ValueError, match="observes nothing"):
        dgp.to_inferencedata(KEY, nothing, None, {}, X)


def test_files_load_back_equal(stored, tmp_path):
    stored = stored[1]
    stored.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    back = xarray.open_datatree(tmp_path / "tree.nc", engine="h5netcdf")
    xarray.testing.assert_equal(stored, back)
    for group in stored.children:
        for name in stored[group].data_vars:
            assert stored[group][name].attrs == back[group][name].attrs
    assert back.attrs == stored.attrs
