"""SGHMC: stationary distributions, exact posteriors, warm-up, and NumPyro's interface."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import MCMC
from support.foreign_models import FOREIGN, assert_same_posterior, nuts
from support.helpers import KEY, assert_mean, regression

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers._sghmc import SGHMC

SDS = np.array([1.0, 0.3, 0.1, 0.01])  # of variances with condition number 1e4
CHAINS = 64


def gaussian(noise=0.0):
    """N(0, SDS²), whose gradient has noise of standard deviation `noise` / SDS."""
    x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real_vector, (), (4,)))
    unit = dist.Normal(0, 1).expand([4]).to_event(1)
    e: object = numpyro.sample("e", unit, infer={"is_auxiliary": True})
    numpyro.factor("p", jnp.sum(-0.5 * (x / SDS) ** 2 + noise * e * x / SDS))


@functools.cache
def draws(noise=0.0, steps=20_000, thinning=40, warmup=4000, **options):
    """Draws of x from chains that start at its mean, [C, S, 4], in units of the true sds."""
    mcmc = MCMC(
        SGHMC(gaussian, **options),
        num_warmup=warmup,
        num_samples=steps,
        thinning=thinning,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(KEY, noise, init_params={"x": jnp.zeros((CHAINS, 4))}, extra_fields=("temperature",))
    return np.asarray(mcmc.get_samples(group_by_chain=True)["x"], np.float64) / SDS


def assert_variance(x, truth=1.0):
    """The variance of each coordinate, within the standard error over chains, and within 5 %."""
    assert_mean((x**2).mean(axis=1), truth)
    assert np.abs((x**2).mean(axis=(0, 1)) / truth - 1).max() < 0.05


def test_stationary_law_of_a_gaussian():
    """Variances are right with noisy gradients, by steps of the default size."""
    assert_variance(draws(1.0, steps=3000, thinning=20, warmup=1500))


@pytest.mark.slow
def test_stationary_law_at_other_levels_of_noise_and_steps():
    for noise, options in ((0.0, {}), (3.0, {}), (1.0, {"step_size": 0.3, "friction": 0.3})):
        assert_variance(draws(noise, **options))


@pytest.mark.slow
def test_many_coordinates_that_depend_on_each_other():
    """Warm-up finds stable steps where combinations are far stiffer than any coordinate."""
    rng, dim = np.random.default_rng(0), 120
    A = rng.uniform(size=(1000, dim))
    y = A @ rng.standard_normal(dim) + rng.standard_normal(1000)
    cov = np.linalg.inv(A.T @ A + np.eye(dim))
    assert np.linalg.eigvalsh(cov / np.sqrt(np.outer(*[np.diag(cov)] * 2)))[0] < 1 / 50
    chains = run_mcmc(
        KEY, SGHMC(linear), jnp.asarray(A, float), jnp.asarray(y, float), num_warmup=4000,
        num_samples=300, thinning=20, num_chains=4, progress=False,
    )  # fmt: skip
    w = chains.samples["w"].astype(np.float64) - cov @ A.T @ y
    assert not chains.fields["diverging"].any()
    assert np.mean(w**2 / np.diag(cov)) == pytest.approx(1.0, abs=0.12)


def linear(A, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([A.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(A @ w, 1), obs=y)


def far(y, batch_size=None):
    """A model whose posterior is far from the prior's centre."""
    mean, sd = numpyro.sample("mean", dist.Normal(0, 100)), numpyro.sample("sd", dist.HalfNormal(5))
    with dgp.minibatch(y, batch_size=batch_size) as y:
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize(("centre", "batch_size"), [(50, 20), (500, None)])
def test_warm_up_from_afar(centre, batch_size):
    """2,000 steps suffice from hundreds of posterior standard deviations away.

    The mean has a Student's t distribution about the rows' mean; its sd is right to a few percent.
    """
    y = centre + np.random.default_rng(0).standard_normal(200)
    chains = run_mcmc(
        KEY, SGHMC(far), jnp.asarray(y, float), batch_size=batch_size, num_warmup=2000,
        num_samples=100, thinning=40, num_chains=8, progress=False,
    )  # fmt: skip
    mean = (chains.samples["mean"].astype(np.float64) - y.mean()) / (y.std() / np.sqrt(200))
    assert_mean(mean.mean(axis=1), 0.0)
    assert mean.std(axis=1).max() < 1.5
    assert mean.std() == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_models_that_are_not_ours(name):
    """Means and variances agree with NUTS, up to a bias of 3 % of the variances."""
    model, args = FOREIGN[name]
    chains = run_mcmc(
        KEY, SGHMC(model), *args, num_warmup=2000, num_samples=1000, thinning=10, num_chains=8,
        progress=False,
    )  # fmt: skip
    assert_same_posterior(chains, nuts(model, *args), bias=0.03)
    assert not chains.fields["diverging"].any()


@pytest.mark.slow
def test_deterministic_sites_come_along():
    """Draws of a minibatch's steps have the deterministic sites of all rows, also in stock MCMC."""
    x, y = regression(rows=12)
    x = x[:, 0]

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
            mean = numpyro.deterministic("mean", w * x)
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    options = {"num_warmup": 20, "num_samples": 5}
    stock = MCMC(SGHMC(model), progress_bar=False, **options)
    stock.run(KEY, x, y, batch_size=4)
    ours = run_mcmc(KEY, SGHMC(model), x, y, batch_size=4, progress=False, **options)
    for chains in (ours, dgp.Chains.from_mcmc(stock)):
        mean = chains.samples["w"][..., None] * np.asarray(x)
        np.testing.assert_allclose(chains.samples["mean"], mean, rtol=1e-5)


def test_params_with_a_random_start_stay_as_they_are():
    def model():
        b = numpyro.param("b", lambda key: 3 * random.normal(key))
        numpyro.factor("p", b * numpyro.sample("w", dist.Normal(0, 1)))

    energy = lambda k: Potential(model)(k, {"w": jnp.ones(())}, Call()).value  # noqa: E731
    assert len({float(energy(k)) for k in random.split(KEY, 5)}) == 1


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_moves_nothing():
    def model():
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("cliff", jnp.where(x > 0.5, jnp.nan, 0.0) * x)

    with pytest.warns(UserWarning, match="of the draws diverge"):
        chains = run_mcmc(
            KEY, SGHMC(model, step_size=0.5), num_warmup=200, num_samples=500, progress=False
        )
    assert chains.fields["diverging"].any()
    assert not chains.fields["diverging"].all()
    assert (chains.samples["x"] < 0.6).all()
