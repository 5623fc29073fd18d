"""The particles of the evidence as posterior draws."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY
from support.tiny import annealed, assert_evidence

import dgp_ppl as dgp
from dgp_ppl import kernels

X = jnp.zeros((1, 1))
SHARES, MODES, SD = np.array([0.3, 0.7]), np.array([-2.0, 1.5]), 0.2


def two_modes(x, y=None):
    """One inducing value v, and a likelihood of v with two modes."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), X)(x)

    def likelihood(f):
        return dist.MixtureSameFamily(
            dist.Categorical(jnp.asarray(SHARES)),
            dist.Normal(f[..., None] - jnp.asarray(MODES), SD),
        )

    with numpyro.plate("data", 1):
        numpyro.sample("y", dgp.observe(f, likelihood), obs=y)


def exact():
    """Return the evidence, and the posterior probability of the right mode."""
    v = np.linspace(-6, 6, 100_001)
    joint = stats.norm.pdf(v) * (SHARES * stats.norm.pdf(v[:, None], MODES, SD)).sum(axis=1)
    return np.log(joint.sum() * (v[1] - v[0])), joint[v > 0].sum() / joint.sum()


@functools.cache
def found():
    """Annealed from the prior, in 16 islands of 64 particles."""
    guide = dgp.MeanField(two_modes)
    params = {"l1.v.loc": jnp.zeros((1, 1)), "l1.v.scale_tril": jnp.ones((1, 1, 1))}
    return annealed(
        two_modes, guide, params, X, jnp.zeros(1), start="prior", num_particles=1024, num_islands=16
    )


@pytest.mark.slow
def test_two_modes_have_their_weights():
    """Within five percent, and within the error of the particles' worth."""
    evidence, right = exact()
    assert_evidence(found(), evidence)
    chains = found().chains
    weights = np.exp(chains.log_weights - chains.log_weights.max())
    share = np.sum(weights * (chains.samples["l1.v"][..., 0, 0] > 0)) / weights.sum()
    error = np.sqrt(right * (1 - right) / found().effective_particles)
    assert abs(share - right) < min(4 * error, 0.05)
    assert found().warnings == ()


def test_particles_go_to_arviz_and_to_predictions():
    """Resampled by their weights; ArviZ has the weight of each."""
    args = X, jnp.zeros(1)
    chains = found().chains
    assert chains.shape == (16, 64)
    data = dgp.to_inferencedata(
        KEY, two_modes, None, {}, *args, posterior_samples=chains, num_samples=10_000
    )
    v = np.asarray(data["posterior"]["l1.v"])
    assert v.shape[:2] == (16, 64)
    np.testing.assert_array_equal(v, chains.equally_weighted().samples["l1.v"])
    assert data["sample_stats"]["log_weight"].shape == (16, 64)
    pred = dgp.predict(KEY, two_modes, None, {}, X, posterior_samples=chains, num_samples=1024)
    mean = chains.equally_weighted().samples["l1.v"].mean() - SHARES @ MODES
    assert float(np.squeeze(pred.mean)) == pytest.approx(mean, abs=1e-3)
