"""The objective of the diffusion guide: several paths, and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from support.diffusion import Z, shaken, wavy
from support.helpers import (
    KEY,
    assert_mean,
    bound,
    no_guide,
    regression,
    start,
    two_layers,
)

import dgp_ppl as dgp
from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO
from dgp_ppl.inference.guides.diffusion._guide import Diffusion


def test_paths_share_a_minibatch():
    def sums(y, *, batch_size):
        with dgp.minibatch(y, batch_size=batch_size) as y:
            numpyro.sample("y", dist.Delta(jnp.zeros(len(y)), log_density=y), obs=jnp.zeros(len(y)))

    y = 2.0 ** jnp.arange(12)
    loss = lambda key: -DiffusionELBO(3).loss(key, {}, sums, no_guide, y, batch_size=1)  # noqa: E731
    values = jax.jit(jax.vmap(loss))(random.split(KEY, 40))
    assert np.isin(np.round(values), 12 * np.asarray(y)).all()
    assert len(set(np.round(values).tolist())) > 5


@pytest.mark.slow
def test_paths_average():
    x, y = regression(rows=6)
    guide = Diffusion(two_layers, steps=2, score=wavy)
    params = shaken(start(two_layers, guide, x, y, z=Z), 0.2) | {"noise": 1.0}

    def many(key):
        return -DiffusionELBO(8).loss(key, params, two_layers, guide, x, y, z=Z, batch_size=3)

    values = jax.jit(jax.vmap(many))(random.split(KEY, 200))
    single = bound(two_layers, guide, params, x, y, z=Z, keys=random.split(random.key(1), 3000))
    assert_mean(values, single.mean(), errors=5)
    assert DiffusionELBO(2) == DiffusionELBO(2) != DiffusionELBO(3)
    assert hash(DiffusionELBO(2)) == hash(DiffusionELBO(2))
