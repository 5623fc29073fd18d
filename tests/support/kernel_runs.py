"""A regression, and runs of any kernel on it that take two draws."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from support.helpers import KEY

from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC

X = random.normal(KEY, (40, 2))
Y = X @ jnp.array([1.0, -0.5]) + 0.3 * random.normal(random.key(1), (40,))


def slope(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


QUICK = {"num_warmup": 0, "num_samples": 2, "progress": False}


def short(kernel=None, key=KEY, **options):
    return run_mcmc(key, kernel or SGHMC(slope), X, Y, **(QUICK | options))
