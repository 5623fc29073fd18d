"""Parallel tempering on posteriors with known modes, weights and moments."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from support.helpers import KEY, assert_mean

from dgp_ppl import ParallelTempering, run_mcmc
from dgp_ppl.inference.samplers._tempering import _first_ladder, _respaced, _swapped

FLOAT = jnp.zeros(()).dtype
CENTRES, SHARES, SD = jnp.array([[-4.0, 0.0], [4.0, 2.0]]), jnp.array([0.2, 0.8]), 0.2


def two_modes(scale=3.0):
    """Two narrow modes, forty of their sds apart, that the prior covers."""
    x = numpyro.sample("x", dist.Normal(0, scale).expand([2]).to_event(1))
    logs = dist.Normal(CENTRES, SD).to_event(1).log_prob(x) + jnp.log(SHARES)
    numpyro.factor("data", jnp.logaddexp(*logs))


def weights():
    """Posterior probability of the second mode: a product of Gaussians, in closed form."""
    marginal = np.prod(
        np.exp(dist.Normal(0, np.sqrt(9 + SD**2)).log_prob(np.asarray(CENTRES))), axis=1
    )
    joint = np.asarray(SHARES) * marginal
    return joint[1] / joint.sum()


@pytest.mark.slow
def test_two_modes_have_their_weights():
    """Within five percent, and within the error over chains, from one mode."""
    chains = run_mcmc(
        KEY, ParallelTempering(two_modes, num_temperatures=12), num_warmup=600, num_samples=1500,
        num_chains=8, init_params={"x": jnp.tile(CENTRES[0], (8, 1))}, progress=False,
    )  # fmt: skip
    right = (chains.samples["x"][..., 0] > 0).mean(axis=1)
    assert_mean(right, weights())
    assert abs(right.mean() - weights()) < 0.05
    trips = chains.fields["round_trips"][:, -1]
    assert (trips > 50).all()
    assert (chains.fields["round_trips"][:, 0] <= 1).all()  # trips of warm-up are not counted
    # Within a mode the spread is the mode's.
    x = chains.samples["x"][..., 0]
    inside = [np.where(x > 0, (x - x[x > 0].mean()) ** 2, np.nan)]
    assert np.nanmean(inside) == pytest.approx(1 / (1 / SD**2 + 1 / 9), rel=0.1)


def test_swaps_keep_the_joint_distribution():
    """Of two Gaussians at temperatures 1 and 0.25, after many swaps and nothing else."""
    betas = jnp.array([1.0, 0.25])
    ladder = _first_ladder(2, FLOAT)._replace(betas=betas)
    x = random.normal(KEY, (20_000, 2)) / jnp.sqrt(betas)

    @jax.jit
    @jax.vmap
    def swap(key, x):
        _, source = _swapped(key, ladder, -0.5 * x**2, 0)
        return x[source]

    for k in range(3):
        x = swap(random.split(random.key(k), len(x)), x)
    assert_mean(x**2, 1 / betas)


def test_spacing_makes_rejections_even():
    """The rejection between two temperatures of a Gaussian target is a function of their ratio."""
    ladder = _first_ladder(6, FLOAT)

    def measured(ladder):
        draws = random.normal(KEY, (4000, 6)) / jnp.sqrt(1 + 50 * ladder.betas)
        likelihood = -25 * draws**2
        gain = (ladder.betas[:-1] - ladder.betas[1:]) * (likelihood[:, 1:] - likelihood[:, :-1])
        return jnp.mean(1 - jnp.exp(jnp.minimum(0.0, gain)), axis=0)

    before = measured(ladder)
    for _ in range(4):
        ladder = _respaced(ladder._replace(rejection=measured(ladder)))
    after = measured(ladder)
    assert float(jnp.std(after)) < 0.25 * float(jnp.std(before))
    assert float(after.sum()) == pytest.approx(float(before.sum()), rel=0.25)
    assert ladder.betas[0] == 1
    assert ladder.betas[-1] == 0
    assert not ladder.rejection.any()
