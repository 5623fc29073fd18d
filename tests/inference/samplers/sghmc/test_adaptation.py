"""Warm-up from distant starts."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers.sghmc._sghmc import SGHMC


def far(y, batch_size=None):
    """A model whose posterior is far from the prior's centre."""
    mean, sd = numpyro.sample("mean", dist.Normal(0, 100)), numpyro.sample("sd", dist.HalfNormal(5))
    with dgp.minibatch(y, batch_size=batch_size) as y:
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)


@pytest.mark.slow
def test_warm_up_from_afar():
    """2,000 steps suffice from hundreds of posterior standard deviations away.

    The mean has a Student's t distribution about the rows' mean; its sd is right to a few percent.
    """
    for centre, batch_size in ((50, 20), (500, None)):
        warm_up_from_afar(centre, batch_size)


def warm_up_from_afar(centre, batch_size):
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
