"""A model whose latent sites come from its guide."""

import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from support.helpers import KEY, one_layer, regression, spread

import dgp_ppl as dgp

X, _ = regression(rows=5)
PARAMS = {"l1.v.loc": jnp.linspace(-1, 1, 4)[:, None], "l1.v.scale_tril": 0.1 * jnp.eye(4)[None]}


def test_the_layer_integrates_over_the_guides_q():
    """The marginals of f equal `predict`'s, whatever the key."""
    guide = dgp.MeanField(one_layer)
    program = dgp.guided(one_layer, guide, PARAMS)
    means = []
    for seed in (0, 1):
        with handlers.seed(rng_seed=seed):
            sites = handlers.trace(program).get_trace(X, z=spread(4))
        means.append(np.asarray(sites["y"]["fn"].marginals.mean)[:, 0])
    np.testing.assert_allclose(means[0], means[1], rtol=1e-6)
    wanted = dgp.predict(KEY, one_layer, guide, PARAMS, X, num_samples=1, z=spread(4)).mean
    np.testing.assert_allclose(means[0], wanted, rtol=1e-4, atol=1e-5)
