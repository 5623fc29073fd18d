"""A regression, short runs of `run_mcmc` on it, and their comparison."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC


def slope(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


X = random.normal(KEY, (60, 3))
Y = X @ jnp.array([1.0, -0.5, 0.2]) + 0.3 * random.normal(random.key(1), (60,))
RUN = {"num_warmup": 300, "num_samples": 100, "thinning": 4, "num_chains": 2, "progress": False}


def sampled(kernel=None, **options):
    kernel = SGHMC(slope) if kernel is None else kernel
    return run_mcmc(KEY, kernel, X, Y, **({"batch_size": 20} | RUN | options))


def short(kernel=None, key=KEY, **options):
    """Return two draws of any kernel."""
    quick = {"num_warmup": 0, "num_samples": 2, "progress": False}
    return run_mcmc(key, kernel or SGHMC(slope), X, Y, **(quick | options))


def assert_same(a, b):
    for name in a.samples:
        np.testing.assert_array_equal(a.samples[name], b.samples[name])
    keys = [random.key_data(run.state.rng_key) for run in (a, b)]
    np.testing.assert_array_equal(*keys)
