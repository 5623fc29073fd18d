"""The function of a fit at any inputs: draws, gradients, covariances, and within other models."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from support.helpers import KEY, compiled

import dgp_ppl as dgp
from dgp_ppl import Standardizer, models

pytestmark = pytest.mark.wrong_types  # signatures promise NumPy's arrays; traced ones are JAX's
Z = jnp.linspace(-1, 1, 6)[:, None]
X = np.array([[-0.5], [0.1], [0.2], [0.9]])
PARAMS = {
    "l1.v.loc": jnp.sin(jnp.arange(6.0))[:, None], "l1.v.scale_tril": 0.3 * jnp.eye(6)[None],
    "l1.z": Z, "l1.variance": jnp.array(1.5), "l1.lengthscale": jnp.array([0.4]),
    "noise": jnp.array(0.1),
}  # fmt: skip
SCALE = Standardizer.fit(np.array([[0.0], [4.0]]), np.array([1.0, 7.0]))


def emulator(model=models.svgp, params=PARAMS, **options):
    guide = dgp.MeanField(model)
    p = dgp.predict(KEY, model, guide, params, X[:1], z=Z, standardizer=SCALE, **options)
    return dgp.function(p), lambda x: dgp.predict(
        KEY, model, guide, params, x, z=Z, standardizer=SCALE, **options
    )


def test_it_is_the_prediction_of_f_at_any_inputs():
    f, predict = emulator()
    np.testing.assert_array_equal(f(X).mean, predict(X).f.mean)
    np.testing.assert_array_equal(f(X).var, predict(X).f.var)
    pooled = dgp.function(dgp.pool([f.prediction, f.prediction]))
    np.testing.assert_allclose(pooled(X).interval(0.9), f(X).interval(0.9), rtol=1e-5)
    with pytest.raises(ValueError, match=r"x has shape \(3, 2\), wanted \[N, 1\]"):
        dataclasses.replace(f, prediction=dataclasses.replace(f.prediction, standardizer=None))(
            np.zeros((3, 2))
        )


def test_draws_are_the_same_functions_at_any_inputs_with_their_moments():
    f, _ = emulator()
    draws = f.draws(KEY, 400)
    values = draws(X)
    np.testing.assert_allclose(draws(X[::-1][:2]), values[:, ::-1][:, :2], rtol=1e-4, atol=1e-4)
    assert np.abs(values.mean(axis=0) - f(X).mean).max() < 4 * np.sqrt(f(X).var.max() / 400)
    covariance, sd = f.covariance(KEY, X, 4000), np.sqrt(f(X).var)
    np.testing.assert_allclose(np.diag(covariance), sd**2, rtol=1e-5)
    exact = np.cov(f.at(X).function_draws(jax.random.key(7), 4000).T)
    error = np.abs(covariance - exact) / np.outer(sd, sd)
    assert error.max() < 5 * np.sqrt(2 / 4000)


def test_gradients_are_of_the_mean_and_of_units_of_the_data():
    f, _ = emulator()
    mean, sd = f.gradient(KEY, X, 300)
    slopes = jax.jit(jax.vmap(jax.grad(lambda x: f(x[None]).mean[0])))
    slope = slopes(jnp.asarray(X, float))
    assert mean.shape == sd.shape == X.shape
    assert (np.abs(mean - slope) < 4 * sd / np.sqrt(300)).all()
    step = (f(X + 0.01).mean - f(X - 0.01).mean) / 0.02
    np.testing.assert_allclose(slope[:, 0], step, rtol=0.02, atol=0.02)
    # Far from 0 too, as of unix seconds, which float32 rounds to 128 of them.
    far = dataclasses.replace(SCALE, x_loc=SCALE.x_loc + 1.6e9)
    g = dgp.function(dataclasses.replace(f.prediction, standardizer=far, _cache={}))
    np.testing.assert_allclose(g.gradient(KEY, X + 1.6e9, 300)[0], mean, rtol=1e-3, atol=1e-3)


def test_it_is_a_part_of_another_model():
    """Its sites are no sites of the other model."""
    f, _ = emulator()

    def calibration(y=None):
        theta = numpyro.sample("theta", dist.Uniform(0, 4))
        value = f(theta.reshape(1, 1))
        numpyro.sample("y", dist.Normal(value.mean, jnp.sqrt(value.var)), obs=y)

    def log_density(theta):
        model = handlers.trace(handlers.substitute(calibration, {"theta": theta}))
        sites = model.get_trace(jnp.array([2.0]))
        assert list(sites) == ["theta", "y"]
        return sites["y"]["fn"].log_prob(2.0)[0]

    at = f(np.array([[1.3]]))
    exact = dist.Normal(at.mean[0], np.sqrt(at.var[0])).log_prob(2.0)
    assert jax.jit(log_density)(1.3) == pytest.approx(float(exact), rel=1e-4)


def test_a_fit_in_float64_is_traced_in_float64_alone():
    with jax.enable_x64(True):
        f, _ = emulator(params={n: np.asarray(a, np.float64) for n, a in PARAMS.items()})
    slope = lambda x: jax.grad(lambda x: f(x).mean.sum())(x)  # noqa: E731
    with pytest.raises(TypeError, match=r"wanted the whole program within jax\.enable_x64"):
        slope(jnp.asarray(X, float))
    with jax.enable_x64(True):
        found = slope(jnp.asarray(X))
    step = (f(X + 1e-3).mean - f(X - 1e-3).mean) / 2e-3
    np.testing.assert_allclose(found[:, 0], step, rtol=1e-3)


def test_variance_between_passes_is_of_hidden_layers():
    f, _ = emulator()
    assert f(X).var_between.max() < 1e-10  # of one layer there is none
    deep = {n.replace("l1", "l2"): a for n, a in PARAMS.items() if n != "noise"} | PARAMS
    guide = dgp.MeanField(models.deep_gp)
    p = dgp.predict(KEY, models.deep_gp, guide, deep, X, z=(Z, Z)).f
    means = next(p.components())[1].components.loc[:, 0, : len(X)]
    np.testing.assert_allclose(p.var_between, means.var(axis=0), rtol=1e-4)
    assert ((p.var_between > 0) & (p.var_between < p.var)).all()


def test_draws_of_posterior_samples_are_compiled(x64):
    """Of samples that NumPy holds, as those of a file."""
    samples = {"l1.v": np.random.default_rng(0).standard_normal((20, 6, 1))}
    params = {n: a for n, a in PARAMS.items() if ".v." not in n}
    options = {"z": Z, "posterior_samples": samples}
    f = dgp.function(dgp.predict(KEY, models.svgp, None, params, X, **options))
    draws = f.draws(KEY, 5)
    np.testing.assert_allclose(jax.jit(draws)(jnp.asarray(X)), draws(X), rtol=1e-6)
    covariance = jax.jit(lambda x: f.covariance(KEY, x, 200))(jnp.asarray(X))
    np.testing.assert_allclose(covariance, f.covariance(KEY, X, 200), rtol=1e-6, atol=1e-9)


def test_arguments_by_row_are_refused():
    def model(x, y=None, offset=None):
        f = dgp.gp("l1", dgp.kernels.Matern52(1.0, 0.5), Z)
        with dgp.minibatch(x, y, offset) as (x, y, offset):
            numpyro.sample(
                "y", dgp.observe(f(x) + offset[:, None], lambda f: dist.Normal(f, 1)), obs=y
            )

    p = dgp.predict(KEY, model, None, {}, X, None, jnp.zeros(4))
    with pytest.raises(ValueError, match="wanted a model of x alone"):
        dgp.function(p)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_function_given_more_rows_is_that_of_all_rows(x64, outputs):
    """Of one layer and a Gaussian likelihood it is SGPR with all rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (50, 1))
    y = np.sin(4 * x[:, 0]) + 0.1 * rng.standard_normal(50)
    own = {n: jnp.asarray(PARAMS[n], float) for n in ("l1.z", "l1.variance", "l1.lengthscale")}
    own["noise"] = jnp.array(0.1)
    some, every = (models.optimal_inducing(own, x[:n], y[:n]) for n in (13, 50))

    def of(params):
        if outputs == 2:
            params = params | {
                "l1.v.loc": jnp.tile(params["l1.v.loc"], (1, 2)),
                "l1.v.scale_tril": jnp.tile(params["l1.v.scale_tril"], (2, 1, 1)),
            }
        guide = dgp.MeanField(models.svgp)
        options = {"z": Z, "out": outputs, "standardizer": SCALE, "num_samples": 3}
        return dgp.function(dgp.predict(KEY, models.svgp, guide, params, X, **options))

    raw = 2 * x[13:] + 2, SCALE.original(np.stack([y[13:]] * outputs, axis=1))
    found = of(some).condition(raw[0], raw[1] if outputs == 2 else raw[1][:, 0])
    np.testing.assert_allclose(found(X).mean, of(every)(X).mean, rtol=1e-6)
    np.testing.assert_allclose(found(X).var, of(every)(X).var, rtol=1e-5)


def test_a_diagonal_posterior_is_not_conditioned():
    guide = dgp.MeanField(models.svgp, covariance="diagonal")
    own = {n: a for n, a in PARAMS.items() if n != "l1.v.scale_tril"}
    own["l1.v.scale"] = jnp.ones_like(own["l1.v.loc"])
    f = dgp.function(dgp.predict(KEY, models.svgp, guide, own, X, z=Z))
    with pytest.raises(ValueError, match=r"q\(l1.v\) has a diagonal covariance"):
        f.condition(X[:1], np.ones(1))


def test_fantasies_are_mapped_and_share_a_program(caplog):
    f, _ = emulator(num_samples=2)
    ys = np.array([[3.0, 4.0], [5.0, -2.0]])
    one = [np.asarray(f.condition(X[:2], y)(X).mean) for y in ys]
    every = jax.jit(jax.vmap(lambda y: f.condition(X[:2], y)(X).mean))(ys)
    np.testing.assert_allclose(every, one, rtol=1e-4)
    names = compiled(caplog, lambda: f.condition(X[1:], np.ones(3)))
    assert set(names) <= {"jit(convert_element_type)"}


def test_a_deep_function_moves_towards_new_rows_at_them_alone():
    deep = {n.replace("l1", "l2"): a for n, a in PARAMS.items() if n != "noise"} | PARAMS
    deep["l1.v.scale_tril"] = 0.01 * deep["l1.v.scale_tril"]
    guide = dgp.MeanField(models.deep_gp)
    p = dgp.predict(KEY, models.deep_gp, guide, deep, X, z=(Z, Z), num_samples=50)
    f = dgp.function(p)
    g = f.condition(X[:1], f(X).mean[:1] + 1.0)
    before, after = (np.stack([q(X).mean, q(X).var]) for q in (f, g))
    assert (after[1] <= before[1] + 1e-6).all()
    assert after[0, 0] - before[0, 0] > 0.5
    assert g.prediction.params["l1.v.loc"] is f.prediction.params["l1.v.loc"]
    with pytest.raises(TypeError, match="wanted the prediction of one fit of MeanField"):
        dgp.function(dgp.predict(KEY, models.svgp, None, {}, X, z=Z)).condition(X, np.ones(4))
    loc = lambda y: f.condition(X[:1], y).prediction.params["l2.v.loc"]  # noqa: E731
    lost = jax.jit(jax.vmap(loc))(jnp.array([[1.0], [jnp.nan]]))
    assert np.isfinite(lost[0]).all()
    assert np.isnan(lost[1]).all()
    for x, y in ((X[:1], [np.nan]), ([[np.inf]], [1.0])):
        with pytest.raises((ValueError, dgp.DataError), match=r"NaN|infin"):
            f.condition(x, y)
    with pytest.raises(ValueError, match=r"condition: y has shape \(3,\), wanted \(4,\)"):
        f.condition(X, np.ones(3))
