"""The objective of the diffusion guide: several paths, and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from support.helpers import (
    KEY,
    no_guide,
)

import dgp_ppl as dgp
from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO


def test_paths_share_a_minibatch():
    def sums(y, *, batch_size):
        with dgp.minibatch(y, batch_size=batch_size) as y:
            numpyro.sample("y", dist.Delta(jnp.zeros(len(y)), log_density=y), obs=jnp.zeros(len(y)))

    y = 2.0 ** jnp.arange(12)
    loss = lambda key: -DiffusionELBO(3).loss(key, {}, sums, no_guide, y, batch_size=1)  # noqa: E731
    values = jax.jit(jax.vmap(loss))(random.split(KEY, 40))
    assert np.isin(np.round(values), 12 * np.asarray(y)).all()
    assert len(set(np.round(values).tolist())) > 5
