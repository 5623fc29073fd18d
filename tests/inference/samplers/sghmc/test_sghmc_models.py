"""SGHMC on models that are not ours, with failing starts, and with deterministic sites."""

import jax
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
