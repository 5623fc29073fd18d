"""Many fits to data of different lengths, padded to one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer.autoguide import AutoNormal
from support.fits import OPTIMIZER, SHALLOW, X, Y, Z
from support.helpers import KEY, slow

import dgp_ppl as dgp
from dgp_ppl.core._minibatch import padded
from dgp_ppl.models import deep_gp, gplvm, svgp

SIZES = [20, 17, 19]
KEYS = random.split(KEY, 3)
OPTIONS = {"optimizer": OPTIMIZER, "progress": False}


def padded_data(sizes=SIZES):
    """Return x and y of each length; the padding has values that would count."""
    rows = np.array([[i if i < n else 0 for i in range(20)] for n in sizes])
    x, y = np.asarray(X, float)[rows], np.asarray(Y, float)[rows]
    for i, n in enumerate(sizes):
        y[i, n:] += 100.0
    return x, y


def assert_equal_single_fits(model, guide, **call):
    """With all rows, padding changes nothing but the draws of hidden layers' noise."""
    x, y = padded_data()
    many = dgp.fit_many(KEYS, model, guide, x, y, each=("x", "y"), num_rows=SIZES, **call)
    np.testing.assert_array_equal(many.num_data, SIZES)
    for i, n in enumerate(SIZES):
        alone = dgp.fit(KEYS[i], model, guide, x[i, :n], y[i, :n], **call)
        np.testing.assert_allclose(many.losses[i], alone.losses, rtol=1e-7)
        np.testing.assert_allclose(many.elbo_per_datum[i], alone.elbo_per_datum, rtol=1e-7)
        assert many[i].num_data == alone.num_data == n
        for name, value in alone.params.items():
            np.testing.assert_allclose(many[i].params[name], value, 1e-5, 1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("model", "guide", "arguments"),
    [
        (svgp, dgp.MeanField(svgp), {"z": Z}),
        (deep_gp, dgp.MeanField(deep_gp), {"z": [Z]}),
        slow(dgp.models.bnn, AutoNormal(dgp.models.bnn), {"hidden": ()}),
    ],
)
def test_padded_fits_equal_single_fits(model, guide, arguments):
    assert_equal_single_fits(model, guide, steps=12, **arguments, **OPTIONS)


@pytest.mark.usefixtures("x64")
@pytest.mark.slow
@pytest.mark.parametrize("loss", [dgp.ImportanceWeighted(2), dgp.PredictiveELBO(elbo_share=0.5)])
def test_other_objectives_leave_padding_out(loss):
    assert_equal_single_fits(svgp, SHALLOW, z=Z, steps=6, loss=loss, **OPTIONS)


@pytest.mark.usefixtures("x64")
def test_minibatches_of_padded_data_are_unbiased():
    x, y = (a[1] for a in padded_data())
    kwargs = {"z": [Z], "out": 1}
    guide = dgp.MeanField(deep_gp)
    fit = dgp.fit(KEY, deep_gp, guide, X, Y, steps=5, **kwargs, **OPTIONS)
    loss = numpyro.infer.TraceMeanField_ELBO()

    @jax.jit
    def bound(key):
        with padded(17):
            return -loss.loss(key, fit.params, deep_gp, guide, x, y, batch_size=5, **kwargs)

    draws = np.asarray(jax.vmap(bound)(random.split(KEY, 4000)))
    wanted, _ = dgp.evaluate(KEY, deep_gp, guide, fit, X[:17], Y[:17], num_draws=2, **kwargs)
    error = draws.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - wanted) < 4 * error
    assert error < 0.02 * abs(wanted)


@pytest.mark.usefixtures("x64")
def test_masks_of_rows_and_entries_join_the_padding():
    y = np.stack([Y, -Y], axis=1)
    y[1, 0] = np.nan  # of a row that is no padding

    def model(x, y, seen, *, batch_size=None):
        with dgp.minibatch(x, y, seen, batch_size=batch_size) as (x, y, seen):
            f = dgp.Marginals(jnp.zeros((len(x), 2)), jnp.ones((len(x), 2)))
            normal = lambda f: dist.Normal(f, 1.0).to_event(1)  # noqa: E731
            numpyro.sample("y", dgp.observe(f, normal, mask=seen), obs=y)

    def density(x, y, seen):
        trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(x, y, seen)
        return float(trace["y"]["fn"].log_prob(trace["y"]["value"]).sum())

    seen = ~np.isnan(y)
    for mask in (seen, seen.all(axis=1)):
        with padded(15):
            found = density(X, y, mask)
        assert found == pytest.approx(density(X[:15], y[:15], mask[:15]), rel=1e-12)


def in_a_plate_of_its_own(x, y, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z)
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.1)), obs=y)


def observed_before_its_plate(x, y, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z)
    seen = dgp.observe(f(x), lambda f: dist.Normal(f, 0.1), mask=jnp.ones(len(x), bool))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", seen, obs=y)


def in_two_plates(x, y, *, z):
    svgp(x, y, z=z)
    with dgp.minibatch(y, name="other") as other:
        f = dgp.Marginals(jnp.zeros((len(other), 1)), jnp.ones((len(other), 1)))
        numpyro.sample("again", dgp.observe(f, lambda f: dist.Normal(f, 1.0)), obs=other)


def with_a_site_of_its_own(x, y, *, z):
    svgp(x, y, z=z)
    numpyro.sample("other", dist.Normal(0.0, 1.0), obs=jnp.sum(jnp.asarray(x)))


def test_faults_of_padding_are_named():
    """Wrong numbers of rows, and models in whose density padding would count."""
    x, y = padded_data()
    cases = (
        (svgp, [20, 17], "wanted 3 numbers"),
        (svgp, [20, 17, 21], "from 1 to 20"),
        (svgp, [20, 17, 0], "from 1 to 20"),
        (svgp, [20, 17, 3.5], "from 1 to 20"),
        (in_a_plate_of_its_own, SIZES, "site 'y' does not leave padding out"),
        (observed_before_its_plate, SIZES, "site 'y' does not leave padding out"),
        (in_two_plates, SIZES, "in the plates data, other"),
        (with_a_site_of_its_own, SIZES, "site 'other' does not leave padding out"),
        (gplvm, SIZES, "a latent value of each row, which a fit to padded data"),
    )
    for model, num_rows, words in cases:
        z = [np.c_[Z, Z]] if model is gplvm else Z
        call = {"each": ("x", "y"), "steps": 2, "z": z, **OPTIONS}
        with pytest.raises(ValueError, match=words):
            dgp.fit_many(KEYS, model, dgp.MeanField(model), x, y, num_rows=num_rows, **call)
