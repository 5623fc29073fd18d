"""Annealing where the evidence is known: estimates, their errors, particles as draws."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY, exact_evidence, one_layer, regression, squared_exponential
from support.tiny import TINY, X, Y, annealed, assert_evidence, tiny, tiny_evidence

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.evidence._annealing import annealed_evidence

ROWS = regression(rows=20)


GUIDE = dgp.MeanField(one_layer)


@functools.cache
def fitted(steps):
    """Params of a guide of `one_layer` with Z = X, and their bound."""
    result = dgp.fit(KEY, one_layer, GUIDE, *ROWS, z=ROWS[0], steps=steps, progress=False)
    return result.params, evaluate(KEY, one_layer, GUIDE, result.params, *ROWS, z=ROWS[0])[0]


def test_exact_for_a_conjugate_model():
    """From a guide three nats below the evidence."""
    params, bound = fitted(4)
    truth = exact_evidence(*ROWS)
    assert bound < truth - 2
    found = annealed(one_layer, GUIDE, params, *ROWS, z=ROWS[0])
    assert_evidence(found, truth)
    assert found.log_evidence > bound
    assert found.draws["l1.v"].shape == (64, 20, 1)
    assert 0.6 < found.acceptance.mean() < 0.98


@functools.cache
def from_the_posterior():
    """Return annealing that starts where it ends."""
    return annealed(one_layer, GUIDE, fitted(1500)[0], *ROWS, z=ROWS[0], temperatures=5)


@pytest.mark.slow
def test_from_the_posterior_all_weights_are_equal():
    found = from_the_posterior()
    assert found.log_evidence == pytest.approx(exact_evidence(*ROWS), abs=2e-3)
    assert found.log_evidence > fitted(1500)[1] - 2e-3  # rounding in float32
    assert found.effective_particles == pytest.approx(64, rel=1e-3)


def with_offsets(x, y=None):
    """`one_layer` at Z = X, with a latent value for each row."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), ROWS[0])
    with dgp.minibatch(x, y) as (x, y):
        offset = numpyro.sample("offset", dist.Normal(0, 0.5))
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + offset, 0.3)), obs=y)


@pytest.mark.slow
def test_latents_of_rows_are_annealed_too():
    """The bounds of both targets agree here: v determines f at the data."""
    guide, truth = dgp.MeanField(with_offsets), exact_evidence(*ROWS, noise=np.hypot(0.3, 0.5))
    result = dgp.fit(KEY, with_offsets, guide, *ROWS, steps=300, progress=False)
    assert evaluate(KEY, with_offsets, guide, result.params, *ROWS)[0] < truth
    for target in ("bound", "model"):
        found = annealed(with_offsets, guide, result, *ROWS, target=target, temperatures=100)
        assert_evidence(found, truth)


@pytest.mark.slow
def test_from_an_implicit_fit():
    """Particles start from the Gaussian with the moments of its draws."""
    x, y = regression(rows=20)
    guide = dgp.Implicit(one_layer, noise_dim=2)
    params = dgp.fit(KEY, one_layer, guide, x, y, z=x, steps=60, progress=False).params
    found = annealed_evidence(
        KEY, one_layer, guide, params, x, y, z=x, temperatures=100, num_particles=16, progress=False
    )
    assert abs(found.log_evidence - exact_evidence(x, y)) < 4 * found.standard_error + 2e-3
    assert found.standard_error < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("target", ["bound", "model"])
def test_from_the_prior(target):
    """By quadrature, for both targets; the guide's q(v) does not matter.

    The evidence that the bound has is lower, because it averages noise.
    """
    assert tiny_evidence(bound=True) < tiny_evidence() - 1
    far = TINY | {"l1.v.loc": jnp.full((1, 1), 30.0), "l2.v.loc": jnp.full((1, 1), 3e38)}
    found = annealed(
        tiny, dgp.MeanField(tiny), far, X, Y, target=target, start="prior", temperatures=100,
        num_particles=64, num_noise=32,
    )  # fmt: skip
    assert_evidence(found, tiny_evidence(bound=target == "bound"))
    assert set(found.draws) == {"l1.v", "l2.v"} | ({"l1.eps"} if target == "model" else set())


def test_few_temperatures_are_warned_of():
    params, _ = fitted(1)
    with pytest.warns(UserWarning, match="annealed_evidence: ") as warned:
        found = annealed(one_layer, GUIDE, params, *ROWS, z=ROWS[0], temperatures=2)
    assert [str(w.message).split(": ", 1)[1] for w in warned] == list(found.warnings)
    assert "64 particles are worth" in found.warnings[0]
    assert found.effective_particles < 32


ORIGIN = jnp.zeros((1, 1))
SHARES, MODES, SD = np.array([0.3, 0.7]), np.array([-2.0, 1.5]), 0.2


def two_modes(x, y=None):
    """One inducing value v, and a likelihood of v with two modes."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), ORIGIN)(x)

    def likelihood(f):
        return dist.MixtureSameFamily(
            dist.Categorical(jnp.asarray(SHARES)),
            dist.Normal(f[..., None] - jnp.asarray(MODES), SD),
        )

    with numpyro.plate("data", 1):
        numpyro.sample("y", dgp.observe(f, likelihood), obs=y)


@pytest.mark.slow
def test_two_modes_have_their_weights():
    """Within five percent, and within the error of the particles' worth."""
    v, guide = np.linspace(-6, 6, 100_001), dgp.MeanField(two_modes)
    joint = stats.norm.pdf(v) * (SHARES * stats.norm.pdf(v[:, None], MODES, SD)).sum(axis=1)
    evidence, right = np.log(joint.sum() * (v[1] - v[0])), joint[v > 0].sum() / joint.sum()
    params = {"l1.v.loc": jnp.zeros((1, 1)), "l1.v.scale_tril": jnp.ones((1, 1, 1))}
    found = annealed(
        two_modes, guide, params, ORIGIN, jnp.zeros(1), start="prior", num_particles=1024,
        num_islands=16,
    )  # fmt: skip
    assert_evidence(found, evidence)
    chains = found.chains
    weights = np.exp(chains.log_weights - chains.log_weights.max())
    share = np.sum(weights * (chains.samples["l1.v"][..., 0, 0] > 0)) / weights.sum()
    error = np.sqrt(right * (1 - right) / found.effective_particles)
    assert abs(share - right) < min(4 * error, 0.05)
    assert found.warnings == ()


@pytest.mark.slow
def test_particles_go_to_arviz_and_to_predictions():
    """Resampled by their weights; ArviZ has the weight of each."""
    (x, _), options = ROWS, {"z": ROWS[0]}
    chains = from_the_posterior().chains
    options |= {"posterior_samples": chains, "num_samples": 64}
    tree = dgp.to_inferencedata(KEY, one_layer, None, {}, *ROWS, num_prior_samples=0, **options)
    v = np.asarray(chains.spaced(64).samples["l1.v"])
    np.testing.assert_array_equal(tree["posterior"]["l1.v"], v)
    assert tree["sample_stats"]["log_weight"].shape == chains.shape
    p = dgp.predict(KEY, one_layer, None, {}, x, **options)
    L = np.linalg.cholesky(squared_exponential(x, x) + 1e-6 * 1.5 * np.eye(20))
    np.testing.assert_allclose(p.mean, L @ v.mean(axis=(0, 1))[:, 0], atol=0.01)
