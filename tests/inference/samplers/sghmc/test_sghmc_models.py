"""SGHMC on models that are not ours, with failing starts, and with deterministic sites."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax, random
from numpyro.infer import MCMC
from support.foreign_models import FOREIGN, assert_same_posterior, nuts
from support.helpers import KEY

from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers.sghmc._sghmc import SGHMC

SDS = np.geomspace(1, 0.01, 10)
ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((10, 10)))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "preconditioner"),
    [(np.eye(10), "variance"), (ROTATION, "dense")],
    ids=["along the coordinates", "rotated, dense"],
)
def test_stationary_at_a_condition_of_ten_thousand(axes, preconditioner):
    """Means and second moments along the principal axes, within 6 standard errors of 8 chains."""

    def gaussian():
        x = numpyro.sample("x", dist.Normal(0, 10).expand([10]).to_event(1))
        z = (x - 1) @ axes / SDS
        numpyro.factor("target", 0.5 * jnp.sum(jnp.square(x / 10)) - 0.5 * jnp.sum(jnp.square(z)))

    chains = run_mcmc(
        KEY, SGHMC(gaussian, preconditioner=preconditioner), num_warmup=10_000, num_samples=500,
        thinning=20, num_chains=8, progress=False,
    )  # fmt: skip
    z = (np.asarray(chains.samples["x"], np.float64) - 1) @ axes / SDS
    for moment, truth in ((z, 0.0), (np.square(z), 1.0)):
        means = moment.mean(axis=1)
        error = means.std(axis=0, ddof=1) / np.sqrt(8)
        assert (error < 0.05).all()
        assert (np.abs(means.mean(axis=0) - truth) < 6 * error).all()


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
