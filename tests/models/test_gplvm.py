import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from support.helpers import KEY, bound, regression, spread, start

import dgp_ppl as dgp
from dgp_ppl import initialize, kernels, models

gplvm = models.gplvm


def curve(rows=60, noise=0.1):
    """Two distant curves in four dimensions: rows, positions on the curve, and which curve."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-1.5, 1.5, rows)
    side = np.arange(rows) % 2
    y = np.stack([t, t**2 - 1, np.sin(3 * t), 3.0 * side - 1.5], axis=1)
    y = y + noise * rng.standard_normal(y.shape)
    return jnp.asarray(y, float), t, side


@pytest.fixture(scope="module")
def fitted():
    y = curve()[0]
    layout, first = initialize.gplvm(KEY, y, 3, num_inducing=20)
    guide = dgp.MeanField(gplvm, covariance="shared")
    options = dict(layout, out=4)
    result = dgp.fit(KEY, gplvm, guide, None, y, start=first, steps=4000, progress=False, **options)
    return y, guide, result.params, options


@pytest.mark.slow
def test_it_finds_what_the_rows_differ_in(fitted):
    """At most two of three dimensions are relevant: the position on the curve, and which curve.

    One relevant dimension can hold both. That optimum has the better bound, by 1.6 nats per row.
    The machine's rounding decides which of the two a fit reaches.
    """
    _, _, params, _ = fitted
    _, t, side = curve()
    scaled = np.asarray(params["latent_auto_loc"]) / np.asarray(params["l1.lengthscale"])
    relevance = np.std(scaled, axis=0)
    relevant = relevance > 0.1 * relevance.max()
    assert relevant.sum() <= 2
    kept = scaled[:, relevant]
    distance = np.square(kept[:, None] - kept).sum(axis=-1) + np.diag(np.full(len(t), np.inf))
    nearest = np.argmin(distance, axis=1)
    assert (side[nearest] == side).all()
    assert np.median(np.abs(t[nearest] - t)) < 0.15  # rows are 0.1 apart on average


def test_missing_entries_are_recovered(fitted):
    """For new rows, the error is close to the noise, and the predicted sd close to the error."""
    y, guide, params, options = fitted
    rng = np.random.default_rng(5)
    t, side = rng.uniform(-1.4, 1.4, 40), rng.integers(0, 2, 40)
    new = np.stack([t, t**2 - 1, np.sin(3 * t), 3.0 * side - 1.5], axis=1)
    seen = np.ones(new.shape, bool)
    seen[:, 2] = False
    first = params["latent_auto_loc"][initialize.nearest_rows(new, seen, y)]
    hidden = np.where(seen, new, np.nan)
    found = dgp.infer_latent(
        KEY, gplvm, guide, params, None, hidden, seen, start=first, progress=False, **options
    )
    recovered = found.reconstruct(KEY, num_samples=50, **options)
    error = recovered.mean[:, 2] - new[:, 2]
    assert np.sqrt(np.mean(error**2)) < 0.15
    assert np.std(error) < 2.5 * np.sqrt(recovered.var[:, 2]).mean()
    np.testing.assert_allclose(recovered.mean[:, 0], new[:, 0], atol=0.25)


@pytest.mark.slow
def test_rows_of_the_fit_are_reconstructed(fitted):
    y, guide, params, options = fitted
    own = dgp.latent_inputs(gplvm, guide, params)
    back = own.reconstruct(KEY, chunk_size=25, **options)  # the last chunk is not full
    assert back.mean.shape == y.shape
    assert np.sqrt(np.mean((back.mean - y) ** 2)) < 0.1


def test_hyperparameters_in_a_plate_of_their_own_are_no_rows():
    """Predictions draw them from q or take given draws, like any other latent site."""

    def model(x, y=None):
        with numpyro.plate("dims", 2):
            scale = numpyro.sample("scale", dist.LogNormal(0, 1))
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, scale), jnp.eye(3, 2))
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.1)), obs=y)

    x, y = regression(rows=5, dim=2)
    guide = dgp.MeanField(model)
    params = start(model, guide, x, y) | {"scale_auto_loc": jnp.array([-1.0, 1.0])}
    params |= {"scale_auto_scale": jnp.full(2, 1e-3), "l1.v.loc": jnp.ones((3, 1))}
    assert not guide.row_params
    means = [
        dgp.predict(KEY, model, guide, params | {"scale_auto_loc": loc}, x[:4], num_samples=3).mean
        for loc in (jnp.array([-1.0, 1.0]), jnp.array([1.0, -1.0]))
    ]
    assert not np.allclose(*means)
    given = {"scale": jnp.array([[0.1, 0.1], [9.0, 9.0]]), "l1.v": jnp.ones((2, 3, 1))}
    one, other = (
        dgp.predict(KEY, model, None, {}, x, posterior_samples=given | {"scale": s}).mean
        for s in (given["scale"], 3 * given["scale"])
    )
    assert (one != other).any()
    again = dgp.predict(KEY, model, None, {}, x, posterior_samples=given, chunk_size=2).mean
    np.testing.assert_allclose(again, one, rtol=1e-5)


def test_a_custom_likelihood_and_a_mask():
    """Counts with missing entries: the bound ignores the values there."""
    y = jnp.asarray(np.random.default_rng(0).poisson(3.0, (8, 2)))
    seen = jnp.asarray(np.arange(16).reshape(8, 2) % 3 > 0)
    options = {
        "z": (spread(4),), "out": 2,
        "likelihood": lambda f: dist.Poisson(jnp.exp(f)).to_event(1),
    }  # fmt: skip
    guide = dgp.MeanField(gplvm)
    params = start(gplvm, guide, None, y, seen, **options)
    one = bound(gplvm, guide, params, None, y, seen, **options)
    other = bound(gplvm, guide, params, None, jnp.where(seen, y, 77), seen, **options)
    assert float(one) == float(other)
    assert np.isfinite(float(one))


def test_wrong_use():
    y, guide = curve()[0], dgp.MeanField(gplvm, covariance="shared")
    options = {"z": (jnp.linspace(-1, 1, 12).reshape(4, 3),), "out": 4}
    params = start(gplvm, guide, None, y, **options)
    with handlers.seed(rng_seed=0), pytest.raises(ValueError, match=r"x = jnp\.zeros\(\(N, 0\)\)"):
        gplvm(None, z=(spread(4),))
    with handlers.seed(rng_seed=0), pytest.raises(ValueError, match="for 1 known inputs"):
        gplvm(jnp.zeros((3, 1)), z=(spread(4),))
    with pytest.raises(ValueError, match=r"start has shape \(2,\), wanted \(60, 3\)"):
        dgp.infer_latent(KEY, gplvm, guide, params, None, y, start=jnp.zeros(2), **options)
    with pytest.raises(ValueError, match="params has no 'x_auto_loc'"):
        dgp.latent_inputs(gplvm, guide, params, site="x")
    with pytest.raises(ValueError, match=r"dim is 0, wanted at least 1"):
        initialize.gplvm(KEY, y, 0)
    with pytest.raises(ValueError, match=r"has no 5 principal components"):
        initialize.gplvm(KEY, y, 5)
    with pytest.raises(ValueError, match="y is not finite everywhere; fill missing entries"):
        initialize.gplvm(KEY, np.full((4, 2), np.nan), 1)
    with pytest.raises(ValueError, match="was set up for 60 rows, and the model has 50; make"):
        dgp.fit(KEY, gplvm, guide, None, y[:50], steps=1, progress=False, **options)
    custom = dgp.MeanField(gplvm, rest=lambda m: AutoNormal(m, init_scale=0.2))
    with pytest.raises(TypeError, match="guide is MeanField with latent rows"):
        dgp.infer_latent(KEY, gplvm, custom, params, None, y, **options)
    far = 1e8 + np.arange(30.0)[:, None] * [1, -1]
    np.testing.assert_array_equal(
        initialize.nearest_rows(far, np.ones((30, 2)), far), np.arange(30)
    )
