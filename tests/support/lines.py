"""A regression line as a plain NumPyro model, and its data tree."""

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp

KEY = random.key(0)
N = 40
X = np.random.default_rng(0).normal(size=N)
Y = 0.7 * X + 0.3 * np.random.default_rng(1).normal(size=N)


def line(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(w * x, 0.3), obs=y)


def tree_of(model, *args, samples=None, guide=None, params=None, **options):
    options = {"num_samples": 50, "num_prior_samples": 0, **options}
    return dgp.to_inferencedata(
        KEY, model, guide, params or {}, *args, posterior_samples=samples, **options
    )


def grouped(x, y=None):
    """One intercept for each output, in a plate that also contains the data."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("output", 3, dim=-1):
        b = numpyro.sample("b", dist.Normal(0, 100))
    with numpyro.plate("data", len(x), dim=-2), numpyro.plate("output", 3, dim=-1):
        numpyro.sample("y", dist.Normal(w * x[:, None] + b, 0.1), obs=y)


SCALE = dgp.Standardizer(np.zeros(1), np.ones(1), y_loc=1e6, y_scale=20.0)
