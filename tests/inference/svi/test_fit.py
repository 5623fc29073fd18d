"""`fit` and `evaluate`: starts, objectives, and losses that are not finite."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro.infer import RenyiELBO
from support.fits import DEEP, OPTIMIZER, SHALLOW, X, Y, Z, descending, shallow
from support.helpers import KEY, bound, no_guide

import dgp_ppl as dgp
from dgp_ppl import inference
from dgp_ppl.inference import evaluate, fit_program
from dgp_ppl.models import deep_gp, sgpr, svgp


def deep(steps=40, key=KEY, **options):
    options = {"optimizer": OPTIMIZER} | options
    return dgp.fit(key, deep_gp, DEEP, X, Y, z=(Z, Z), steps=steps, progress=False, **options)


def assert_same(a, b):
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = random.key_data(left), random.key_data(right)
        np.testing.assert_array_equal(left, right)


def test_two_fits_in_a_row_are_one():
    """A fit that starts from a result continues its optimiser state and random key."""
    whole = deep(40)
    half = deep(20)
    rest = deep(20, start=half, key=random.key(7))
    np.testing.assert_array_equal(np.concatenate([half.losses, rest.losses]), whole.losses)
    assert_same(rest.params, whole.params)
    assert_same(rest.state, whole.state)
    assert (deep(20, key=random.key(7)).losses[5:] != half.losses[5:]).all()


def test_starting_from_some_params():
    given = shallow(10, start={"noise": jnp.float32(0.7)})
    params = {"l1.z": Z, "l1.variance": 1.0, "l1.lengthscale": 1.0, "noise": 0.7}
    params |= {"l1.v.loc": jnp.zeros((6, 1)), "l1.v.scale_tril": jnp.eye(6)[None]}
    value = bound(svgp, SHALLOW, jax.tree.map(jnp.asarray, params), X, Y, z=Z)
    assert given.losses[0] == pytest.approx(-float(value), rel=1e-5)


def test_the_better_of_start_and_end_is_kept():
    """The kept state belongs to the kept params, and its key is the key after the fit."""
    first, uphill = shallow(20), optax.sgd(-1e-4)
    lost = shallow(10, start=first.params, optimizer=uphill)
    assert lost.losses[-1] > lost.losses[0]
    kept = shallow(10, start=first.params, optimizer=uphill, keep_best=True)
    np.testing.assert_array_equal(kept.losses, lost.losses)
    assert kept.reverted
    assert (random.key_data(kept.state.rng_key) == random.key_data(lost.state.rng_key)).all()
    np.testing.assert_allclose(kept.params["l1.v.loc"], first.params["l1.v.loc"], rtol=1e-6)
    again = shallow(10, start=kept, optimizer=uphill)
    np.testing.assert_allclose(again.losses, lost.losses, rtol=1e-5)
    gained, plain = (shallow(10, start=first.params, keep_best=k) for k in (True, False))
    assert gained.losses[-1] < gained.losses[0]
    assert_same(gained.params, plain.params)
    assert not gained.reverted


@pytest.mark.slow
def test_a_fit_reaches_the_collapsed_bound():
    """SVGP trains q(v) and hyperparameters, and gets as far as SGPR in the same steps."""
    options = {"steps": 1500, "progress": False, "learning_rate": 0.1}
    collapsed = dgp.fit(KEY, sgpr, no_guide, X, Y, z=Z, **options)
    result = dgp.fit(KEY, svgp, SHALLOW, X, Y, z=Z, **options)
    assert collapsed.losses[-1] < 0.5 * collapsed.losses[0]
    assert result.losses[-1] == pytest.approx(collapsed.losses[-1], abs=0.5)
    assert result.losses[-1] > collapsed.losses[-1] - 0.1


def test_a_model_without_a_plate():
    def model(x, y):
        f = dgp.gp("f", dgp.kernels.SquaredExponential(1.0, 1.0), Z)
        observed = dgp.observe(f(x), lambda f: dist.Normal(f, 0.3)).to_event(1)
        numpyro.sample("y", observed, obs=y)

    result = dgp.fit(KEY, model, dgp.MeanField(model), X, Y, steps=10, progress=False)
    assert result.losses[-1] < result.losses[0]


def with_extra_site(*args, **kwargs):
    numpyro.sample("l1.v", dist.Normal().expand([6, 1]).to_event(2))
    numpyro.sample("extra", dist.Normal())


def test_errors():
    for error, message, call in (
        (ValueError, "steps is -1, wanted at least 1", lambda: shallow(-1)),
        *((ValueError, "learning_rate is .*wanted a positive",
           lambda rate=rate: shallow(1, learning_rate=rate)) for rate in (0.0, np.nan, np.inf)),
        # Such a bound could exceed the evidence.
        (TypeError, r"fit: loss is a RenyiELBO.*wanted dgp_ppl.Importance",
         lambda: shallow(2, loss=RenyiELBO())),
        (TypeError, "evaluate: loss is a RenyiELBO",
         lambda: evaluate(KEY, svgp, SHALLOW, {}, X, Y, z=Z, loss=RenyiELBO())),
        (ValueError, r"the guide draws \[\], wanted 'l1.v' too",
         lambda: dgp.fit(KEY, svgp, lambda *_, **__: None, X, Y, z=Z)),
        (ValueError, r"the guide draws 'extra', which the model does not: .*is_auxiliary",
         lambda: dgp.fit(KEY, svgp, with_extra_site, X, Y, z=Z)),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def test_evaluate_is_the_mean_of_bounds_and_its_error():
    params = deep(10).params | {"l1.v.scale_tril": 0.5 * jnp.eye(6)[None]}
    mean, error = evaluate(KEY, deep_gp, DEEP, params, X, Y, z=(Z, Z), num_draws=400)
    keys = random.split(random.key(3), 400)
    values = np.asarray(bound(deep_gp, DEEP, params, X, Y, keys=keys, z=(Z, Z)))
    assert error == pytest.approx(values.std() / np.sqrt(400), rel=0.2)
    assert mean == pytest.approx(values.mean(), abs=4.5 * np.sqrt(2) * error)


def test_the_step_and_the_site_of_a_loss_that_is_not_finite():
    """The step is inside a chunk of ten steps, or the first one of a chunk."""
    options = {"steps": 30, "optimizer": optax.sgd(0.1), "progress": False}
    for first, step in ((1.0, 11), (0.9, 10), (0.5, 6), (0.0, 1)):
        with pytest.raises(dgp.NonFiniteLossError) as caught:
            dgp.fit(KEY, descending, no_guide, first, **options)
        error = caught.value
        assert (error.step, error.site) == (step, "site f")
        assert f"not finite at step {step} (of 30); first not finite: site f" in str(error)
        assert "smaller learning_rate" in str(error)
        assert error.result.losses.shape == (step,)
        assert np.isfinite(error.result.losses).all()
        # The last state with a finite loss.
        assert error.result.params["w"] == pytest.approx(first - 0.1 * (step - 1), abs=1e-4)


def test_fits_that_go_nowhere():
    """A huge loss, params that do not move, and scales below zero, with the site's name."""

    def constant(y):
        numpyro.factor("f", 0.0 * numpyro.param("w", 1.0))

    def huge(y):
        numpyro.factor("f", 0.1 * numpyro.param("w", 1.0))
        numpyro.factor("g", -1e30 + 0 * y.sum())

    def sample(distribution):
        def model(y):
            numpyro.sample("y", distribution(numpyro.param("w", 0.3)), obs=y)

        return model

    gamma = sample(lambda w: dist.Gamma(w, 1.0).expand([5]))
    normal = sample(lambda w: dist.Normal(0.0, w).expand([5]))
    y = np.full(5, 1e-3, np.float32)
    options = {"steps": 2, "optimizer": optax.sgd(0.03), "progress": False}
    for model, message in (
        (constant, r"fit: no param moved in 2 steps: .*\['w'\]"),
        (huge, r"fit: the loss is 1e\+30 at the end, most of it at site g"),
        (gamma, "site y .concentration of Gamma is out of its range.*constraint=constraints"),
    ):
        with pytest.warns(UserWarning, match=message):
            dgp.fit(KEY, model, no_guide, y, **options)
    with pytest.raises(dgp.NonFiniteLossError, match=r"site y .scale of Normal is out of"):
        dgp.fit(KEY, normal, no_guide, y, **options)
    keys = random.split(KEY, 2)
    with pytest.warns(UserWarning, match=r"fit\[0\]: no param moved.*2 of 2 fits"):
        inference.fit_many(keys, constant, no_guide, y, **options)


def test_data_that_is_not_finite():
    """NaN in the argument itself is found before: see `test_data`."""

    def halved(x, y, z):
        svgp(x, 0.5 * y, z=z)

    y = np.asarray(Y).copy()
    y[3] = np.nan
    guide = dgp.MeanField(halved)
    with pytest.raises(
        dgp.NonFiniteLossError, match=r"'y' is NaN or infinite in 1 of 20 rows \[3\]"
    ) as caught:
        dgp.fit(KEY, halved, guide, X, y, z=Z, steps=10, optimizer=OPTIMIZER, progress=False)
    assert (caught.value.step, caught.value.site) == (0, "site y")
    assert caught.value.result is None
    with pytest.raises(dgp.NonFiniteLossError) as caught:
        shallow(10, start={"noise": jnp.float32(jnp.nan)})
    assert (caught.value.step, caught.value.site) == (0, "param noise")


def test_an_interrupted_fit_is_the_errors_result_and_goes_on(stop_after, monkeypatch, tmp_path):
    stop_after(2, KeyboardInterrupt)
    with pytest.raises(dgp.Interrupted, match=r"after 20 of 40 steps.*for 20 steps") as caught:
        shallow(40)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not isinstance(caught.value, Exception)
    result = caught.value.result
    assert result.interrupted
    assert "interrupted" in repr(result)
    assert pickle.loads(pickle.dumps(result)).interrupted
    assert result.losses.shape == (20,)
    mean = dgp.predict(KEY, svgp, SHALLOW, result, X, z=Z, num_samples=2).mean
    assert np.isfinite(mean).all()
    dgp.save(tmp_path / "part.dgp", svgp, SHALLOW, result, z=Z)
    kept = dgp.load(tmp_path / "part.dgp")
    np.testing.assert_array_equal(kept.predict(KEY, X, num_samples=2).mean, mean)
    monkeypatch.undo()
    rest, whole = shallow(20, start=result), shallow(40)
    assert not rest.interrupted
    np.testing.assert_array_equal([*result.losses, *rest.losses], whole.losses)
    assert_same(rest.params, whole.params)


def test_a_program_of_steps_makes_the_steps_of_a_fit():
    run, state, data = fit_program(KEY, svgp, SHALLOW, X, Y, num=6, steps=12, z=Z)
    compiled, losses = jax.jit(run).lower(state, data).compile(), []
    for _ in range(2):
        state, new = compiled(state, data)
        losses.append(new[:6])
    whole = shallow(12, optimizer=None)
    np.testing.assert_allclose(np.concatenate(losses), whole.losses, rtol=1e-5)
    for num in (0, 201):
        with pytest.raises(ValueError, match=f"fit_program: num is {num}, wanted at"):
            fit_program(KEY, svgp, SHALLOW, X, Y, num=num, z=Z)
