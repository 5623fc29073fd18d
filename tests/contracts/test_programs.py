"""Models run unchanged under NumPyro's inference and handlers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Predictive, TraceMeanField_ELBO
from support.helpers import (
    KEY,
    assert_mean,
    bound,
    exact_posterior,
    one_layer,
    regression,
    start,
    two_layers,
)

import dgp_ppl as dgp


def test_stock_svi():
    x, y = regression()
    svi = SVI(two_layers, dgp.MeanField(two_layers), optax.adam(0.03), TraceMeanField_ELBO())
    result = svi.run(KEY, 150, x, y, z=x[:5], batch_size=10, progress_bar=False)
    losses = np.asarray(result.losses)
    assert np.isfinite(losses).all()
    assert losses[-30:].mean() < 0.8 * losses[:30].mean()


@pytest.mark.slow
def test_nuts_finds_the_exact_posterior():
    """One layer with Z = X, where mean and covariance of f at the inputs are known."""
    x, y = regression(rows=6)
    mcmc = MCMC(NUTS(one_layer), num_warmup=300, num_samples=1500, num_chains=1, progress_bar=False)
    mcmc.run(KEY, x, y, z=x)
    v = mcmc.get_samples()["l1.v"]

    def function(v):
        with handlers.seed(rng_seed=0), handlers.substitute(data={"l1.v": v}):
            return dgp.gp("l1", dgp.kernels.SquaredExponential(1.5, 0.8), x)(x).mean[:, 0]

    f = np.asarray(jax.jit(jax.vmap(function))(v), np.float64)
    mean, cov = exact_posterior(x, y, x)
    for draws, truth in ((f, mean), ((f - mean) ** 2, np.diag(cov))):
        error = draws.std(axis=0) / np.sqrt(effective_sample_size(draws[None]))
        assert (np.abs(draws.mean(axis=0) - truth) < 4.5 * error + 1e-3).all()


lifted_noise = handlers.lift(two_layers, {"noise": dist.LogNormal(-1, 1)})


@pytest.fixture(scope="module")
def deep_draws():
    """Return a few NUTS draws of two layers and a lifted hyperparameter."""
    x, y = regression(rows=6)
    kernel = NUTS(lifted_noise, max_tree_depth=3)
    mcmc = MCMC(kernel, num_warmup=5, num_samples=6, progress_bar=False)
    mcmc.run(KEY, x, y, z=x[:4])
    return mcmc.get_samples()


@pytest.mark.slow
def test_nuts_samples_hyperparameters_and_the_unit_noise_of_hidden_layers(deep_draws):
    shapes = {n: a.shape for n, a in deep_draws.items()}
    assert shapes == {"noise": (6,), "l1.v": (6, 4, 1), "l2.v": (6, 4, 1), "l1.eps": (6, 6, 1)}
    assert all(np.isfinite(a).all() for a in deep_draws.values())
    assert all(np.std(a, axis=0).min() > 0 for a in deep_draws.values())
    assert (deep_draws["noise"] > 0).all()


@pytest.mark.slow
def test_predictive_with_posterior_samples(deep_draws):
    x, _ = regression(rows=6)
    y = Predictive(lifted_noise, deep_draws)(KEY, x, z=x[:4])["y"]
    assert y.shape == (6, 6)
    assert np.isfinite(y).all()


def test_predictive_at_other_rows_than_a_sampler_saw():
    """Draws of a hidden layer's noise belong to their rows; without them any rows work."""
    x, _ = regression(rows=6)
    draws = {n: jnp.ones((3, 4, 1)) for n in ("l1.v", "l2.v")}
    kept = draws | {"l1.eps": jnp.ones((3, 6, 1))}
    with pytest.raises(ValueError, match=r"site 'l1\.eps' has values of shape \(6, 1\).*predict"):
        Predictive(two_layers, kept)(KEY, x[:2], z=x[:4])
    assert Predictive(two_layers, draws)(KEY, x[:2], z=x[:4])["y"].shape == (3, 2)


def test_predictive_draws_from_the_prior():
    x, _ = regression(rows=5)
    y = Predictive(one_layer, num_samples=4000)(KEY, x, z=x)["y"]
    assert_mean(y, np.zeros(5))
    assert_mean(y**2, np.full(5, 1.5 + 0.3**2))


def test_predictive_draws_from_the_guide():
    """The draws of y have the moments that q(v) implies."""
    x, _ = regression(rows=5)
    guide = dgp.MeanField(one_layer)
    params = start(one_layer, guide, x, z=x) | {"l1.v.loc": jnp.full((5, 1), 0.7)}
    predictive = Predictive(one_layer, guide=guide, params=params, num_samples=4000)
    y = predictive(KEY, x, z=x)["y"]
    with handlers.seed(rng_seed=0), handlers.substitute(data={"l1.v": params["l1.v.loc"]}):
        mean = dgp.gp("l1", dgp.kernels.SquaredExponential(1.5, 0.8), x)(x).mean[:, 0]
    assert_mean(y, mean)
    assert_mean((y - mean) ** 2, np.full(5, 1.5 + 0.3**2))


def learned(x, y=None, *, z):
    """One layer, with params before and after it."""
    k = dgp.kernels.SquaredExponential.learned("l1", 1)
    f = dgp.gp("l1", k, z)
    noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, noise)), obs=y)


def test_lift_puts_priors_on_hyperparameters_and_mean_field_covers_them():
    """The bound of the lifted model is the plain one minus the KL of the hyperparameters.

    Their q is narrow, N(log 0.8, 1e-3²) for the log lengthscale; the prior is N(0, 1).
    """
    x, y = regression()
    plain_guide, z = dgp.MeanField(learned), x[:5]
    plain = start(learned, plain_guide, x, y, z=z)
    priors = {
        "l1.lengthscale": dist.LogNormal(0, 1).expand([1]).to_event(1),
        "noise": dist.LogNormal(0, 1),
    }
    values = {"l1.lengthscale": jnp.array([0.8]), "noise": jnp.array(0.5)}
    lifted = handlers.lift(learned, priors)
    guide = dgp.MeanField(lifted)
    params = start(lifted, guide, x, y, z=z)
    ends = ("_auto_loc", "_auto_scale")
    assert set(params) == (set(plain) - set(values)) | {n + end for n in values for end in ends}
    kl = 0.0
    for name, value in values.items():
        params |= {f"{name}_auto_loc": jnp.log(value), f"{name}_auto_scale": 1e-3 + 0 * value}
        kl += -np.log(1e-3) - 0.5 + 0.5 * (1e-3**2 + np.log(value.item()) ** 2)
    bounds = bound(lifted, guide, params, x, y, keys=random.split(KEY, 400), z=z)
    assert_mean(bounds, bound(learned, plain_guide, plain | values, x, y, z=z) - kl)


def test_trace_and_substitute():
    x, y = regression(rows=6)
    given = {"l1.v": jnp.ones((4, 1)), "noise": 0.5, "l2.z": x[2:6]}
    program = handlers.substitute(handlers.seed(two_layers, KEY), data=given)
    sites = handlers.trace(program).get_trace(x, y, z=x[:4])
    latent = ["l1.v", "l2.v", "l1.eps", "y"]
    assert [n for n, s in sites.items() if s["type"] == "sample"] == latent
    assert (sites["l1.v"]["value"] == 1).all()
    assert sites["noise"]["value"] == 0.5
    np.testing.assert_array_equal(sites["l2.z"]["value"], x[2:6])
    assert sites["y"]["is_observed"]
    assert sites["y"]["cond_indep_stack"][0].name == "data"
