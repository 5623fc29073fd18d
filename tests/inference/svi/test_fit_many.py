"""Many fits in one program, also of padded data: each equals its own fit, and none stops others."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro.infer.autoguide import AutoNormal
from support.fits import OPTIMIZER, SHALLOW, X, Y, Z, shallow
from support.helpers import KEY, assert_errors, bound as bound_of, slow, start

import dgp_ppl as dgp
from dgp_ppl.core._minibatch import padded
from dgp_ppl.models import deep_gp, gplvm, svgp

KEYS = random.split(KEY, 3)
OPTIONS = {"optimizer": OPTIMIZER, "progress": False}


def many(steps=10, keys=KEYS, **options):
    return dgp.fit_many(keys, svgp, SHALLOW, X, Y, z=Z, steps=steps, **(OPTIONS | options))


def assert_close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(a.losses, b.losses, rtol=tolerance)
    assert a.params.keys() == b.params.keys()
    for name in a.params:
        np.testing.assert_allclose(a.params[name], b.params[name], 100 * tolerance, 1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_restarts_equal_single_fits():
    """The minibatches and the draws of hidden layers follow the keys."""
    apart = X[1::4]  # so that rounding does not decide on the jitter
    options = OPTIONS | {"z": [apart, apart], "batch_size": 8, "steps": 12}
    guide = dgp.MeanField(deep_gp)
    fits = dgp.fit_many(KEYS, deep_gp, guide, X, Y, **options)
    assert (len(fits), fits.succeeded, fits.losses.shape) == (3, [0, 1, 2], (3, 12))
    for key, found in zip(KEYS, fits, strict=True):
        alone = dgp.fit(key, deep_gp, guide, X, Y, **options)
        assert_close(found, alone)
        assert (found.num_data, found.optimizer) == (20, OPTIMIZER)
    assert np.ptp(fits.losses[:, 0]) > 0
    np.testing.assert_array_equal(fits[-1].losses, fits.losses[2])
    with pytest.raises(IndexError):
        fits[3]


@pytest.mark.usefixtures("x64")
def test_a_fit_that_fails_stops_no_other():
    x, y, z = (jnp.asarray(a, float) for a in (X, Y, Z))
    ys = jnp.stack([y, 1e200 * y, y])
    fits = dgp.fit_many(KEYS, svgp, SHALLOW, x, ys, z=z, each=("y",), steps=12, **OPTIONS)
    assert (fits.succeeded, list(fits.errors)) == ([0, 2], [1])
    assert_close(fits[2], dgp.fit(KEYS[2], svgp, SHALLOW, x, y, z=z, steps=12, **OPTIONS))
    with pytest.raises(dgp.NonFiniteLossError, match="not finite at step 0") as caught:
        fits[1]
    assert caught.value.result is None
    assert np.isnan(fits.losses[1]).all()
    assert "fit 1 failed: the loss is not finite at step 0 (of 12)" in repr(fits)
    assert len(repr(fits)) < 1000


def test_fits_go_on():
    whole = many(20)
    half = many(8)
    rest = many(12, start=half)
    np.testing.assert_allclose([*half.losses.T, *rest.losses.T], whole.losses.T, rtol=1e-5)
    one = shallow(12, start=half[1])
    np.testing.assert_allclose(one.losses, rest.losses[1], rtol=1e-4)
    # Equal, but not the fits' own: it starts from params, whose factors are transformed and back.
    other = many(3, start=half, optimizer=optax.adam(0.03))
    np.testing.assert_allclose(other.losses[:, 0], rest.losses[:, 0], rtol=1e-4)
    same = many(3, start=half[0].params)
    np.testing.assert_allclose(same.losses[:, 0], rest.losses[0, 0], rtol=1e-4)
    with pytest.raises(ValueError, match="start has 3 fits, wanted one for each of 2 keys"):
        many(3, keys=KEYS[:2], start=half)


def test_the_best_of_restarts():
    found = shallow(10, restarts=3)
    fits = many(10, keys=random.split(KEY, 3))
    bounds = [
        dgp.evaluate(KEY, svgp, SHALLOW, f, X, Y, z=Z, num_draws=2)[0] for f in fits
    ]  # of one layer, without noise
    np.testing.assert_allclose(found.restart_bounds, bounds, rtol=1e-4)
    np.testing.assert_array_equal(found.losses, fits[int(np.argmax(bounds))].losses)
    assert "best of restarts with ELBO per datum" in repr(found)
    with pytest.raises(ValueError, match="restarts is 2, wanted 1 with a checkpoint, keep_best"):
        shallow(10, restarts=2, keep_best=True)
    with pytest.raises(dgp.NonFiniteLossError, match="at step"):
        shallow(10, restarts=2, optimizer=optax.sgd(1e9))


def test_invalid_arguments():
    bad = jnp.stack([Y, Y, Y]).at[2, 5].set(jnp.nan)
    each = lambda y: dgp.fit_many(KEYS, svgp, SHALLOW, X, y, z=Z, each=("y",), steps=2, **OPTIONS)  # noqa: E731
    assert_errors([
        (lambda: many(keys=KEY), r"ValueError.*keys has shape \(\), wanted one random key"),
        (lambda: many(each=("noise",)), r"ValueError.*each names \['noise'\], wanted .*'y'"),
        (lambda: each(Y), r"ValueError.*argument 'y' has shape \(20,\), wanted a leading axis"),
        (lambda: each(bad), r"DataError.*'y'.* is NaN in 1 of 20 rows"),
    ])  # fmt: skip


SIZES = [20, 17, 17]


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
        (svgp, SHALLOW, {"z": Z}),
        slow(deep_gp, dgp.MeanField(deep_gp), {"z": [Z]}),
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
    params = start(svgp, SHALLOW, X, Y, z=Z)
    loss = numpyro.infer.TraceMeanField_ELBO()

    @jax.jit
    def bound(key):
        with padded(17):
            return -loss.loss(key, params, svgp, SHALLOW, x, y, z=Z, batch_size=5)

    draws = np.asarray(jax.vmap(bound)(random.split(KEY, 4000)))
    wanted = float(bound_of(svgp, SHALLOW, params, X[:17], Y[:17], z=Z))
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

    def density(*data):
        trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(*data)
        return trace["y"]["fn"].log_prob(trace["y"]["value"]).sum()

    mask = ~np.isnan(y)
    with padded(15):
        found = jax.jit(density)(X, y, mask)
    alone = jax.jit(density)(X[:15], y[:15], mask[:15])
    np.testing.assert_allclose(found, alone, rtol=1e-12)


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


def about_the_mean(x, y, *, z):
    f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), z)
    with dgp.minibatch(x, y) as (x, y):
        mean = f(x - jnp.mean(x))
        numpyro.sample("y", dgp.observe(mean, lambda f: dist.Normal(f, 0.1)), obs=y)


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
        (about_the_mean, SIZES, "depends on other rows or on their number"),
        (gplvm, SIZES, "a latent value of each row, which a fit to padded data"),
    )
    for model, num_rows, words in cases:
        z = [np.c_[Z, Z]] if model is gplvm else Z
        call = {"each": ("x", "y"), "steps": 2, "z": z, **OPTIONS}
        with pytest.raises(ValueError, match=words):
            dgp.fit_many(KEYS, model, dgp.MeanField(model), x, y, num_rows=num_rows, **call)
