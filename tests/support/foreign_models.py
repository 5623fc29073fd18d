"""NumPyro models without Gaussian processes, and the comparison of two samplers on them."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import NUTS
from support.helpers import KEY

from dgp_ppl.inference.samplers._mcmc import run_mcmc

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
X = random.normal(KEY, (80, 3))
LABELS = (X @ jnp.array([1.5, -1.0, 0.0]) + random.normal(random.key(1), (80,)) > 0).astype(int)
TWO = jnp.where(random.uniform(random.key(2), (60,)) < 0.3, -2.0, 1.5)
VALUES = TWO + random.normal(random.key(3), (60,))


def eight_schools(y):
    """The effects are non-centred; the deterministic site has the effects themselves."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("schools", 8):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
        effect = numpyro.deterministic("effect", mu + tau * unit)
        numpyro.sample("y", dist.Normal(effect, ERRORS), obs=y)


def logistic(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2))
    w = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def two_groups(y):
    """A plate whose rows belong to one of two groups; the groups are summed out by hand."""
    p = numpyro.sample("p", dist.Beta(2, 2))
    low = numpyro.sample("low", dist.Normal(-2, 1))
    gap = numpyro.sample("gap", dist.LogNormal(1, 0.5))
    with numpyro.plate("rows", len(y)):
        first = jnp.log(p) + dist.Normal(low, 1).log_prob(y)
        second = jnp.log1p(-p) + dist.Normal(low + gap, 1).log_prob(y)
        numpyro.factor("y", jnp.logaddexp(first, second))


FOREIGN = {
    "eight schools": (eight_schools, (EFFECTS,)),
    "logistic": (logistic, (X, LABELS)),
    "two groups": (two_groups, (VALUES,)),
}
CHAINS = 8


def moments(chains):
    """Return mean and variance of all sites [d], and their standard errors over chains, [2, d]."""
    flat = [chains.samples[n] for n in sorted(chains.samples)]
    draws = np.concatenate([a.reshape(*a.shape[:2], -1) for a in flat], -1, dtype=np.float64)
    mean = draws.mean(axis=(0, 1))
    parts = np.stack([draws.mean(axis=1), np.square(draws - mean).mean(axis=1)])  # [2, C, d]
    return parts.mean(axis=1), parts.std(axis=1, ddof=1) / np.sqrt(len(draws))


def assert_same_posterior(chains, exact, bias=0.0, errors=6.0):
    """Assert that means and variances agree within standard errors over eight chains.

    The difference has a t distribution of about 14 degrees of freedom: 6 errors happen once in
    30,000 times. `bias` is a fraction of the variances.
    """
    (found, noise), (wanted, other) = moments(chains), moments(exact)
    scale = np.stack([np.sqrt(wanted[1]), wanted[1]])
    assert (noise < 0.15 * scale).all(), noise / scale  # errors are small enough to tell
    slack = np.stack([np.zeros_like(wanted[1]), bias * wanted[1]])
    gap = np.abs(found - wanted)
    assert (gap < slack + errors * np.hypot(noise, other)).all(), gap / np.hypot(noise, other)


def nuts(model, *args, **kwargs):
    options = {"num_warmup": 500, "num_samples": 500, "num_chains": CHAINS, "progress": False}
    return run_mcmc(random.key(7), NUTS(model), *args, **options, **kwargs)
