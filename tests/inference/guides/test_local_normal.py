"""Normal guides of the latent sites of rows, in minibatches."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from support.helpers import KEY, assert_mean, bound, regression, start
from support.two_outputs import Z

import dgp_ppl as dgp
from dgp_ppl import kernels


def latent_inputs(y, *, batch_size=None):
    """A GPLVM: the inputs are a latent site in the data plate."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z)
    with dgp.minibatch(y, batch_size=batch_size) as y:
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.sample("y", dgp.observe(f(x[:, None]), lambda f: dist.Normal(f, 0.3)), obs=y)


@pytest.mark.slow
def test_local_latents_share_the_minibatch():
    """The guide draws the latent inputs of a minibatch's rows; the bound is unbiased."""
    y = regression(rows=6)[1]
    guide = dgp.MeanField(latent_inputs)
    params = start(latent_inputs, guide, y) | {"x_auto_loc": jnp.linspace(-1, 1, 6)}
    assert params["x_auto_scale"].shape == (6,)
    full = bound(latent_inputs, guide, params, y, keys=random.split(KEY, 3000))
    guide = dgp.MeanField(latent_inputs)
    guide.setup(y, batch_size=2)
    keys = random.split(random.key(1), 3000)
    batches = bound(latent_inputs, guide, params, y, keys=keys, batch_size=2)
    assert_mean(batches - full, 0.0)
