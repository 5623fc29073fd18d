"""A deep GP with every kind of site, a short fit of it, and the fit as a data tree."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import SVI, Trace_ELBO
from numpyro.optim import Adam

import dgp_ppl as dgp
from dgp_ppl import kernels

KEY = random.key(0)
X = np.asarray(random.normal(KEY, (23, 2)), np.float64)
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
Z = X[:5]


def deep(x, y=None, *, batch_size=None, mask=None, priors=True):
    """Two layers, with a prior on the noise and a mask."""
    noise = 0.2
    if priors:
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), jnp.asarray(Z, float), out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), jnp.asarray(Z, float))
    with dgp.minibatch(x, y, mask, batch_size=batch_size) as (x, y, mask):
        observed = dgp.observe(f2(f1.sample(x)), lambda f: dist.Normal(f, noise), mask=mask)
        numpyro.sample("y", observed, obs=y)


def fitted(model, *args, guide=None, **kwargs):
    guide = dgp.MeanField(model) if guide is None else guide
    svi = SVI(model, guide, Adam(0.01), Trace_ELBO())
    return guide, svi.run(KEY, 3, *args, progress_bar=False, **kwargs).params


def converted(model, *args, guide=None, options=None, **kwargs):
    guide, params = fitted(model, *args, guide=guide, **kwargs)
    options = {"num_samples": 6, "num_prior_samples": 4, "passes": 3, **(options or {})}
    return dgp.to_inferencedata(KEY, model, guide, params, *args, **options, **kwargs)
