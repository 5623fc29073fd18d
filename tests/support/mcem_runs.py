"""A model with two params and a known evidence, for moving-window MCEM."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from support.helpers import KEY

import dgp_ppl as dgp

X = jnp.linspace(-1, 1, 40)
Y = 1.3 * X + 0.4 * random.normal(KEY, X.shape)


def slope(x, y=None, batch_size=None):
    """w ~ N(0, scale²), y ~ N(w x, noise²): the evidence of (scale, noise) is a Gaussian's."""
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    noise = numpyro.param("noise", 1.0, constraint=dist.constraints.positive)
    w = scale * numpyro.sample("w", dist.Normal(0, 1))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dist.Normal(w * x, noise), obs=y)
