"""Many fits in one program: each equals its own fit, and one that fails stops no other."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import random
from support.fits import OPTIMIZER, SHALLOW, X, Y, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.models import deep_gp, svgp

KEYS = random.split(KEY, 3)
OPTIONS = {"optimizer": OPTIMIZER, "progress": False}


def many(steps=10, keys=KEYS, **options):
    return dgp.fit_many(keys, svgp, SHALLOW, X, Y, z=Z, steps=steps, **(OPTIONS | options))


def assert_close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(a.losses, b.losses, rtol=tolerance)
    assert a.params.keys() == b.params.keys()
    for name in a.params:
        np.testing.assert_allclose(a.params[name], b.params[name], 100 * tolerance, 1e-6)


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
def test_fits_of_other_data_equal_single_fits_in_float64():
    xs = np.stack([np.asarray(X, float) + shift for shift in (0.0, 0.3, 0.7)])
    ys, zs = np.stack([Y, -Y, Y**2]).astype(float), jnp.asarray(xs[:, :18:3])
    fits = dgp.fit_many(
        KEYS, svgp, SHALLOW, xs, ys, z=zs, each=("x", "y", "z"), steps=30, **OPTIONS
    )
    for i, found in enumerate(fits):
        alone = dgp.fit(KEYS[i], svgp, SHALLOW, xs[i], ys[i], z=zs[i], steps=30, **OPTIONS)
        assert_close(found, alone)
        p, q = (dgp.predict(KEY, svgp, SHALLOW, f, xs[i], z=zs[i]) for f in (found, alone))
        np.testing.assert_allclose(p.mean, q.mean, 1e-7, 1e-7)


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


def test_the_last_finite_state_of_a_fit_that_fails():
    """It equals the state of a fit alone, also where the failure is the first step of a chunk."""
    for momentum in (0.9, 0.97):
        options = {"optimizer": optax.sgd(0.05, momentum=momentum)}
        with pytest.raises(dgp.NonFiniteLossError) as alone:
            shallow(400, key=KEYS[1], **options)
        error = many(400, **options).errors[1]
        assert abs(error.step - alone.value.step) <= 1  # rounding grows before the failure
        assert error.site == alone.value.site
        assert error.result.losses.shape == (error.step,)
        assert np.isfinite(error.result.losses).all()
        assert all(np.isfinite(a).all() for a in jax.tree.leaves(error.result.params))


def test_fits_go_on():
    whole = many(20)
    half = many(8)
    rest = many(12, start=half)
    np.testing.assert_allclose([*half.losses.T, *rest.losses.T], whole.losses.T, rtol=1e-5)
    one = shallow(12, start=half[1])
    np.testing.assert_allclose(one.losses, rest.losses[1], rtol=1e-4)
    other = many(3, start=half, optimizer=optax.sgd(1e-3))
    np.testing.assert_allclose(other.losses[:, 0], rest.losses[:, 0], rtol=1e-5)
    same = many(3, start=half[0], optimizer=optax.sgd(1e-3))
    np.testing.assert_allclose(same.losses[:, 0], rest.losses[0, 0], rtol=1e-5)
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
    with pytest.raises(ValueError, match=r"keys has shape \(\), wanted one random key for each"):
        many(keys=KEY)
    with pytest.raises(ValueError, match=r"each names \['noise'\], wanted some of .*'x', 'y', 'z'"):
        many(each=("noise",))
    with pytest.raises(ValueError, match=r"argument 'y' has shape \(20,\), wanted a leading axis"):
        many(each=("y",))
    with pytest.raises(dgp.DataError, match=r"'y'.* is NaN in 1 of 20 rows"):
        dgp.fit_many(
            KEYS, svgp, SHALLOW, X, jnp.stack([Y, Y, Y]).at[2, 5].set(jnp.nan), z=Z, each=("y",),
            steps=2, **OPTIONS,
        )  # fmt: skip
