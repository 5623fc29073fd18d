"""Passes of predictions: their average, their noise, and which latents are new in them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.autoguide import AutoDelta
from scipy import stats
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    hidden_nodes,
    layer_moments,
    one_layer,
    regression,
    spread,
    start,
    two_layer_params,
)
from support.predictions import KERNEL, X_TEST, Y_TEST, components, deep

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.models import svgp
from dgp_ppl.prediction._noise import SpreadNoise

X, Y = regression()


def test_the_passes_average_to_the_doubly_stochastic_prediction():
    """Against quadrature over the hidden layer, in NumPy."""
    loc, scale = components(deep(num_samples=4000))
    mean, density = np.zeros(7), np.zeros(7)
    for weight, h in hidden_nodes(two_layer_params(), X_TEST):
        f_mean, f_var = layer_moments(two_layer_params(), 2, h[:, None])
        mean += weight * f_mean
        density += weight * stats.norm(f_mean, np.sqrt(f_var + 0.3**2)).pdf(Y_TEST)
    assert_mean(loc, mean)
    assert_mean(stats.norm(loc, scale).pdf(Y_TEST), density)

    few, _ = components(deep(num_samples=64))  # spread noise: random noise has an error of 1
    errors = (few.mean(axis=0) - mean) / (few.std(axis=0) / np.sqrt(64))
    assert np.sqrt(np.mean(errors**2)) < 0.25


@pytest.mark.parametrize("points", [1, 2])
def test_spread_noise_is_normal_and_independent_within_a_row(points):
    """Over keys of a single pass, also between the points of a row, and between rows."""

    def model():
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), jnp.zeros((1, 1)), out=2)
        with numpyro.plate("data", 3):
            return f.unit_noise(jnp.zeros((3 * points, 1)))

    def one(key):
        return SpreadNoise(handlers.seed(model, key), key, jnp.arange(9) / 9, 6)()

    draws = jax.jit(jax.vmap(one))(random.split(KEY, 2000)).reshape(2000, -1)
    assert_covariance(draws, np.eye(6 * points))
    assert stats.kstest(np.ravel(draws), "norm").pvalue > 1e-3


def test_spread_noise_of_rows_is_independent_over_passes():
    loc, _ = components(deep(x=np.zeros((200, 1)), num_samples=100))
    white = (loc - loc.mean(axis=0)) / loc.std(axis=0)
    correlation = np.corrcoef(white.T)[np.triu_indices(200, 1)]
    np.testing.assert_allclose(np.std(correlation), 1 / np.sqrt(99), rtol=0.2)


def test_rows_of_different_chunks_have_noise_of_their_own():
    x = np.zeros((4, 1))  # four times the same input
    loc, _ = components(deep(x=x, chunk_size=2))
    assert (np.std(loc, axis=1) > 0).all()
    assert (loc[:, :2] != loc[:, 2:]).all()


def test_all_chunks_of_a_prior_pass_see_one_function():
    options = {"z": spread(5), "num_samples": 3}
    whole, parts = (
        dgp.predict(KEY, svgp, None, {"noise": 0.3} | KERNEL, X_TEST, chunk_size=n, **options)
        for n in (7, 2)
    )
    np.testing.assert_allclose(components(whole)[0], components(parts)[0], atol=1e-5)


X_FIVE, _ = regression(rows=5)
PARAMS = {"l1.v.loc": jnp.linspace(-1, 1, 4)[:, None], "l1.v.scale_tril": 0.1 * jnp.eye(4)[None]}


def test_the_layer_integrates_over_the_guides_q():
    """The marginals of f equal `predict`'s, whatever the key."""
    guide = dgp.MeanField(one_layer)
    program = dgp.guided(one_layer, guide, PARAMS)
    means = []
    for seed in (0, 1):
        with handlers.seed(rng_seed=seed):
            sites = handlers.trace(program).get_trace(X_FIVE, z=spread(4))
        means.append(np.asarray(sites["y"]["fn"].marginals.mean)[:, 0])
    np.testing.assert_allclose(means[0], means[1], rtol=1e-6)
    wanted = dgp.predict(KEY, one_layer, guide, PARAMS, X_FIVE, num_samples=1, z=spread(4)).mean
    np.testing.assert_allclose(means[0], wanted, rtol=1e-4, atol=1e-5)


def test_latent_sites_of_another_support():
    """Params are in unconstrained space; reconstructions apply the bijection."""

    def model(x, y=None):
        f = dgp.gp("l1", kernels.Linear(1.0, 1.0), jnp.array([[1.0]]))
        with dgp.minibatch(x, y) as (x, y):
            w = numpyro.sample("latent", dist.LogNormal(0, 1).expand([1]).to_event(1))
            numpyro.sample("y", dgp.observe(f(w), lambda f: dist.Normal(f, 0.1)), obs=y)

    x, y = jnp.zeros((4, 0)), jnp.arange(4.0)
    guide = dgp.MeanField(model)
    loc = jnp.array([[-1.0], [0.0], [1.0], [2.0]])
    params = start(model, guide, x, y) | {"latent_auto_loc": loc, "l1.v.loc": jnp.ones((1, 1))}
    params |= {"latent_auto_scale": jnp.full((4, 1), 1e-4)}
    params |= {"l1.v.scale_tril": jnp.full((1, 1, 1), 1e-4)}
    back = dgp.latent_inputs(model, guide, params).reconstruct(KEY, num_samples=5)
    np.testing.assert_allclose(back.mean, np.exp(loc)[:, 0], rtol=1e-2)


def _normal(f):
    return dist.Normal(f, 0.1)


def grouped(x, group, y=None, t=None, other=None, other_y=None, *, z, taken=False, shift=None):
    """Groups with data of their own, rows with latent noise, and rows of another data set."""
    x = x + shift if shift else x
    f = dgp.gp("f", kernels.Matern32(1.0, 1.0), z)
    with dgp.minibatch(t, name="groups") if taken else numpyro.plate("groups", 3):
        u = numpyro.sample("u", dist.Normal(0.0, 4.0))
        q = dist.Normal(u, 0.1) if shift is None else dgp.observe(f(z) + u, _normal)
        numpyro.sample("t", q, obs=t)

    def observed(name, x, y):
        with dgp.minibatch(x, group, y, name=f"data{name}") as (x, own, y):
            e = numpyro.sample(f"e{name}", dist.Normal(0.0, 2.0))
            q = dgp.observe(f(x) + u[own] + e, _normal)
            numpyro.sample(f"y{name}", q, obs=y)

    observed("", x, y)
    if other is not None:
        observed("2", other, other_y)


@pytest.mark.parametrize(  # all pairs of values of two arguments
    ("rows", "site", "taken"), [(3, "y", False), (6, "y2", False), (3, "y2", True), (6, "y", True)]
)
def test_only_latents_of_the_predicted_rows_are_new(rows, site, taken):
    x, group, t, truth = X[:6], np.arange(6) % 3, np.zeros(3), np.array([-30.0, 0.0, 30.0])
    options = {"z": X[:3], "taken": taken}
    guide = dgp.MeanField(grouped)
    params = start(grouped, guide, x, group, Y[:6], t, x, Y[:6], **options)
    params |= {n: jnp.full_like(a, 1e-3) for n, a in params.items() if n.endswith("auto_scale")}
    params |= {f"{n}_auto_loc": jnp.full(6, 1e3) for n in ("e", "e2")} | {"u_auto_loc": truth}
    draws = {"f.v": jnp.zeros((400, 3, 1)), "u": jnp.full((400, 3), truth)}
    draws |= {n: jnp.full((400, 6), 1e3) for n in ("e", "e2")}
    second = () if site == "y" else (x[:rows],)
    args = (x[:rows], group[:rows], None, t, *second)
    p = dgp.predict(KEY, grouped, guide, params, *args, num_samples=400, site=site, **options)
    own = {"num_samples": 400, "posterior_samples": draws, "site": site}
    of_draws = dgp.predict(KEY, grouped, None, {}, *args, **own, **options)
    for found in (p, of_draws):
        np.testing.assert_allclose(found.mean, truth[group[:rows]], atol=1.0)
        np.testing.assert_allclose(found.var, 5.0, rtol=0.4)
    model = dgp.guided(grouped, guide, params)
    named = dict(zip(("x", "group", "y", "t", "other"), args, strict=False))
    named |= {} if taken else {"t": None}
    for shift, by_place, by_name in ((None, args, {}), (1e-9, args, {}), (0.0, (), named)):
        by_name = {"shift": shift, **by_name, **options}
        y = Predictive(model, num_samples=400)(KEY, *by_place, **by_name)[site]
        np.testing.assert_allclose(y.mean(0), truth[group[:rows]], atol=1.0)


def test_latents_of_another_plate_of_the_moved_rows_are_new():
    def model(x, y=None, other=None, *, z):
        f, x = dgp.gp("f", kernels.Matern32(1.0, 1.0), z), x / 2
        with dgp.minibatch(x, y, name="first") as (own, y):
            e = numpyro.sample("e", dist.Normal(0.0, 2.0))
            numpyro.sample("y", dgp.observe(f(own) + e, _normal), obs=y)
        with dgp.minibatch(x, other, name="second") as (own, other):
            numpyro.sample("other", dgp.observe(f(own) + e, _normal), obs=other)

    guide = dgp.MeanField(model)
    params = start(model, guide, X[:6], Y[:6], Y[:6], z=X[:3]) | {"e_auto_loc": jnp.full(6, 1e3)}
    options = {"z": X[:3], "num_samples": 50, "site": "other"}
    for rows in (4, 6):
        p = dgp.predict(KEY, model, guide, params, X[:rows], **options)
        assert (np.abs(p.mean) < 5).all()


def test_numpyros_guides_draw_no_latents_of_new_rows():
    def model(x, y=None):
        f1, f2 = (dgp.gp(n, kernels.Matern32(1.0, 1.0), X[:3]) for n in ("l1", "l2"))
        with dgp.minibatch(x, y) as (x, y):
            e = numpyro.sample("e", dist.Normal(0.0, 2.0))
            numpyro.sample("y", dgp.observe(f2(f1.sample(x)) + e, _normal), obs=y)

    rows, guide = np.linspace(-1, 1, 32)[:, None], AutoDelta(model)
    params = start(model, guide, rows, np.zeros(32)) | {"e_auto_loc": jnp.full(32, 1e3)}
    for num in (32, 5):
        assert np.abs(dgp.predict(KEY, model, guide, params, rows[:num]).mean).max() < 5
        program = Predictive(dgp.guided(model, guide, params), num_samples=20)
        assert np.abs(program(KEY, rows[:num])["y"]).max() < 20
