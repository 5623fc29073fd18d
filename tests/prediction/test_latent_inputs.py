"""Latent inputs of rows, and rows reconstructed from them."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from support.helpers import KEY, start

import dgp_ppl as dgp
from dgp_ppl import kernels


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
    np.testing.assert_allclose(guide.median(params)["latent"], np.exp(loc), rtol=1e-5)
    back = dgp.latent_inputs(model, guide, params).reconstruct(KEY, num_samples=5)
    np.testing.assert_allclose(back.mean, np.exp(loc)[:, 0], rtol=1e-2)
