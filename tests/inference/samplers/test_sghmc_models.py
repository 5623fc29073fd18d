"""SGHMC on models with control flow, from far or failing starts, with noisy outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax, random
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer import MCMC, init_to_median
from numpyro.infer.util import potential_energy
from support.helpers import KEY, assert_mean, slow

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers._sghmc import SGHMC

# --- control flow --------------------------------------------------------------------------------

SERIES = jnp.array([1.0, 2.0, 1.5, 3.0, 2.5])


def state_space(y):
    """Supports and scales depend on the state, and a step has two sites."""
    scale = numpyro.sample("scale", dist.LogNormal(-1, 0.3))

    def step(x, y):
        with numpyro.plate("two", 2):
            width = numpyro.sample("width", dist.Uniform(0.0, 1 + x**2))
        x = numpyro.sample("x", dist.Normal(x, scale * width.sum()))
        numpyro.deterministic("double", 2 * x)
        numpyro.sample("y", dist.Normal(x, 0.3), obs=y)
        return x, None

    scan(step, jnp.zeros(()), y)


def branches(y):
    z = numpyro.sample("z", dist.Normal(0, 1))
    wide = lambda _: numpyro.sample("rate", dist.LogNormal(z, 1.0))  # noqa: E731
    narrow = lambda _: numpyro.sample("rate", dist.LogNormal(-z, 0.5))  # noqa: E731
    rate = cond(z > 0, wide, narrow, None)
    numpyro.sample("y", dist.Normal(rate, 1).expand([5]), obs=y)


@pytest.mark.parametrize("model", [state_space, branches])
def test_sites_within_control_flow(model):
    """The energy and its gradient are NumPyro's; deterministic sites match the latents."""
    potential = Potential(model)
    at = potential.start(KEY, init_to_median, Call((SERIES,)))
    at = {n: u + 0.3 * random.normal(KEY, u.shape) for n, u in at.items()}
    ours = lambda u: potential(KEY, u, Call((SERIES,))).value  # noqa: E731
    theirs = lambda u: potential_energy(model, (SERIES,), {}, u)  # noqa: E731
    ours, theirs = jax.jit(lambda u: [jax.value_and_grad(f)(u) for f in (ours, theirs)])(at)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-4), ours, theirs)
    if model is state_space:
        latents = lambda u: potential(KEY, u, Call((SERIES,))).latents  # noqa: E731
        found = jax.jit(lambda u: potential.deterministic(Call((SERIES,)))(latents(u)))(at)
        np.testing.assert_allclose(found["double"], 2 * at["x"], rtol=1e-6)


@pytest.mark.slow
def test_posterior_of_a_random_walk():
    """The posterior is Kalman's: a Gaussian with a tridiagonal precision."""

    def model(y):
        def step(x, y):
            x = numpyro.sample("x", dist.Normal(x, 0.5))
            numpyro.sample("y", dist.Normal(x, 0.3), obs=y)
            return x, None

        scan(step, jnp.zeros(()), y)

    first = np.eye(5) - np.eye(5, k=-1)
    cov = np.linalg.inv(first.T @ first / 0.25 + np.eye(5) / 0.09)
    chains = run_mcmc(
        KEY, SGHMC(model), SERIES, num_warmup=1000, num_samples=400, thinning=20, num_chains=8,
        progress=False,
    )  # fmt: skip
    x = chains.samples["x"].astype(np.float64) - cov @ np.asarray(SERIES) / 0.09
    assert_mean(x.mean(axis=1), 0.0)
    assert_mean((x**2).mean(axis=1) / np.diag(cov), 1.0)


def test_rows_of_steps_are_refused():
    def model():
        def step(x, _):
            with numpyro.plate("rows", 4, subsample_size=2):
                own = numpyro.sample("own", dist.Normal(x, 1))
            return own.sum(), None

        scan(step, jnp.zeros(()), None, length=3)

    with pytest.raises(ValueError, match=r"\['own'\] are in a plate with a subsample_size within"):
        SGHMC(model).init(KEY, 10, None, (), {})


# --- warm-up -------------------------------------------------------------------------------------


def far(y, batch_size=None):
    mean, sd = numpyro.sample("mean", dist.Normal(0, 100)), numpyro.sample("sd", dist.HalfNormal(5))
    with dgp.minibatch(y, batch_size=batch_size) as y:
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize(("centre", "batch_size"), [(50, None), slow(50, 20), slow(500, None)])
def test_warm_up_from_afar(centre, batch_size):
    """2,000 steps suffice from hundreds of posterior standard deviations away.

    The mean has a Student's t distribution about the rows' mean; its sd is right to a few percent.
    """
    y = centre + np.random.default_rng(0).standard_normal(200)
    truth, sd = y.mean(), y.std() / np.sqrt(200)
    chains = run_mcmc(
        KEY, SGHMC(far), jnp.asarray(y, float), batch_size=batch_size, num_warmup=2000,
        num_samples=100, thinning=40, num_chains=8, progress=False,
    )  # fmt: skip
    mean = (chains.samples["mean"].astype(np.float64) - truth) / sd
    assert_mean(mean.mean(axis=1), 0.0)
    assert mean.std(axis=1).max() < 1.5
    assert mean.std() == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_warm_up_with_counts_by_minibatches():
    """Warm-up from rates that are off by e^10, with noisy gradients."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1000, 3))
    y = rng.poisson(np.exp(2 + x @ [1, -1, 0.5]))

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 5).expand([3]).to_event(1))
        shift = numpyro.sample("shift", dist.Normal(0, 10))
        with dgp.minibatch(x, y, batch_size=50) as (x, y):
            numpyro.sample("y", dist.Poisson(jnp.exp(shift + x @ w)), obs=y)

    chains = run_mcmc(
        KEY, SGHMC(model), jnp.asarray(x, float), jnp.asarray(y, float), num_warmup=2000,
        num_samples=100, thinning=20, num_chains=8, progress=False,
    )  # fmt: skip
    assert np.abs(chains.samples["w"] - [1, -1, 0.5]).max() < 0.15  # sd 0.01
    assert np.abs(chains.samples["shift"] - 2).max() < 0.15


# --- starts --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_starts_that_are_not_finite():
    """NaN in the data, or a start beyond a cliff, raises; under jit it cannot be checked."""
    y = jnp.array([1.0, jnp.nan, 2.0])
    with pytest.raises(ValueError, match=r"not finite at the start: the log densities {'y': "):
        MCMC(SGHMC(far), num_warmup=5, num_samples=5, progress_bar=False).run(KEY, y)
    jax.jit(lambda key: SGHMC(far).init(key, 5, None, (y,), {}))(KEY)

    def cliff(edge):
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("cliff", jnp.where(x > edge, jnp.nan, 0.0) * x)

    words = r"of chains \[1, 2\]: the log densities {'cliff': nan}; the gradients of \['x'\]"
    at = {"x": jnp.array([1.0, 3.0, 4.0])}
    with pytest.raises(ValueError, match=words):
        run_mcmc(
            KEY, SGHMC(cliff), 2.0, num_warmup=5, num_samples=5, num_chains=3, init_params=at,
            progress=False,
        )  # fmt: skip


# --- deterministic sites -------------------------------------------------------------------------


def test_draws_have_noise_of_their_own():
    """Every draw has its own value of an auxiliary site, from the prior."""

    def model():
        w = numpyro.sample("w", dist.Normal(0, 1))
        e: object = numpyro.sample("e", dist.Normal(0, 1), infer={"is_auxiliary": True})
        numpyro.deterministic("sum", w + e)

    w = random.normal(KEY, (2000,))
    found = jax.jit(jax.vmap(Potential(model).deterministic(Call())))
    e = np.asarray(found({"w": w})["sum"] - w, np.float64)
    np.testing.assert_array_equal(found({"w": w})["sum"], found({"w": w})["sum"])
    for moment, truth in ((e, 0.0), (e**2, 1.0), (e * np.asarray(w), 0.0), (e[1:] * e[:-1], 0.0)):
        assert_mean(moment, truth)


def test_steps_between_draws_cost_no_post_processing():
    """`num_steps` skips the steps that `thinning` drops, and their deterministic sites."""
    calls = []

    def model():
        w = numpyro.sample("w", dist.Normal(0, 1))
        count = lambda w: calls.append(None) or w  # noqa: E731
        shape = jax.ShapeDtypeStruct((), w.dtype)
        same = jax.pure_callback(count, shape, lax.stop_gradient(w), vmap_method="sequential")
        numpyro.deterministic("same", same)

    whole = run_mcmc(
        KEY, SGHMC(model), num_warmup=50, num_samples=6, thinning=10, progress=False,
    )  # fmt: skip
    calls.clear()
    mcmc = MCMC(SGHMC(model, num_steps=10), num_warmup=5, num_samples=6, progress_bar=False)
    mcmc.run(random.split(KEY, 1)[0])
    np.testing.assert_allclose(mcmc.get_samples()["w"], whole.samples["w"][0], rtol=1e-5)
    np.testing.assert_allclose(mcmc.get_samples()["same"], mcmc.get_samples()["w"])
    assert len(calls) <= 1 + 5 + 6  # the start, and each of MCMC's steps; not 110
    with pytest.raises(ValueError, match="num_steps is 0, wanted at least 1"):
        SGHMC(model, num_steps=0)
