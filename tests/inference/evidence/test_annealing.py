"""Annealing where the evidence is known: estimates, their errors, particles as draws."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import NUTS
from scipy import integrate, stats
from support.helpers import KEY, exact_evidence, one_layer, regression, slow, squared_exponential
from support.tiny import TINY, X, Y, annealed, assert_evidence, tiny, tiny_evidence

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.evidence._annealing import annealed_evidence
from dgp_ppl.inference.evidence._weights import log_mean
from dgp_ppl.inference.guides._transport import transported
from dgp_ppl.inference.samplers._mcmc import run_mcmc

ROWS = regression(rows=20)


GUIDE = dgp.MeanField(one_layer)


@functools.cache
def fitted(steps):
    """Params of a guide of `one_layer` with Z = X, and their bound."""
    result = dgp.fit(KEY, one_layer, GUIDE, *ROWS, z=ROWS[0], steps=steps, progress=False)
    return result.params, evaluate(KEY, one_layer, GUIDE, result.params, *ROWS, z=ROWS[0])[0]


def test_exact_for_a_conjugate_model():
    """From a guide three nats below the evidence, with any number of temperatures."""
    params, bound = fitted(50)
    truth = exact_evidence(*ROWS)
    assert bound < truth - 2
    once, twice = (
        annealed(one_layer, GUIDE, params, *ROWS, z=ROWS[0], temperatures=number)
        for number in (100, None)
    )
    for found in (once, twice):
        assert_evidence(found, truth)
        assert found.log_evidence > bound
        assert found.draws["l1.v"].shape == (64, 20, 1)
        assert 0.6 < found.acceptance.mean() < 0.98
    apart = once.log_evidence - twice.log_evidence
    assert abs(apart) < 4 * np.hypot(once.standard_error, twice.standard_error)


def test_never_below_the_bound():
    """The estimate is below the bound by at most its standard error."""
    params, bound = fitted(400)
    found = annealed(one_layer, GUIDE, params, *ROWS, z=ROWS[0], temperatures=50)
    assert found.log_evidence > bound - found.standard_error - 2e-3  # rounding in float32
    assert_evidence(found, exact_evidence(*ROWS))


def exact_draws(num):
    """Draws of v of `one_layer` with Z = X from its posterior, [num, N, 1]."""
    x, y = ROWS[0], np.asarray(ROWS[1], np.float64)
    L = np.linalg.cholesky(squared_exponential(x, x) + 1e-6 * 1.5 * np.eye(20))
    covariance = np.linalg.inv(np.eye(20) + L.T @ L / 0.09)
    mean = covariance @ L.T @ y / 0.09
    return np.random.default_rng(0).multivariate_normal(mean, covariance, num)[..., None]


@pytest.mark.slow
def test_in_reverse_from_exact_draws():
    """The upper end of the sandwich, on a conjugate model."""
    params, _ = fitted(50)
    truth = exact_evidence(*ROWS)
    found = annealed(
        one_layer, GUIDE, params, *ROWS, z=ROWS[0], temperatures=100,
        posterior_samples={"l1.v": exact_draws(64)},
    )  # fmt: skip
    assert_evidence(found, truth)
    assert abs(found.upper - truth) < 4 * found.upper_error + 2e-3
    assert 0 < found.upper_error < 0.3
    with pytest.warns(UserWarning, match="particles are worth"):
        few = annealed(
            one_layer, GUIDE, params, *ROWS, z=ROWS[0], temperatures=1, num_particles=200,
            num_islands=200, posterior_samples={"l1.v": exact_draws(200)},
        )  # fmt: skip
    assert few.log_weights.mean() < truth - 1  # with one temperature, far on either side
    assert few.upper > truth - 4 * few.upper_error


def test_from_the_posterior_all_weights_are_equal():
    found = annealed(one_layer, GUIDE, fitted(1500)[0], *ROWS, z=ROWS[0], temperatures=5)
    assert found.log_evidence == pytest.approx(exact_evidence(*ROWS), abs=2e-3)
    assert found.effective_particles == pytest.approx(64, rel=1e-3)


@pytest.mark.slow
def test_either_target_of_two_layers():
    """Both evidences agree with quadrature; the bound's is lower, because it averages noise."""
    guide, x, y = dgp.MeanField(tiny), jnp.asarray(X, float), jnp.asarray(Y, float)
    model = annealed(tiny, guide, TINY, x, y, target="model", temperatures=200)
    assert_evidence(model, tiny_evidence())
    bound = annealed(tiny, guide, TINY, x, y, temperatures=100, num_noise=100)
    assert tiny_evidence(bound=True) < tiny_evidence() - 1
    assert_evidence(bound, tiny_evidence(bound=True))
    assert set(model.draws) == {"l1.v", "l2.v", "l1.eps"}


@pytest.mark.slow
def test_a_sandwich_by_nuts():
    """Both ends agree with quadrature, with NUTS on the transported model."""
    guide, x, y = dgp.MeanField(tiny), jnp.asarray(X, float), jnp.asarray(Y, float)
    program = transported(tiny, guide, TINY)
    options = {"num_warmup": 500, "num_samples": 1000, "num_chains": 4, "progress": False}
    exact = run_mcmc(KEY, NUTS(program), x, y, **options).get_samples()
    found = annealed(
        tiny, guide, TINY, x, y, target="model", temperatures=200, num_particles=96,
        posterior_samples=exact,
    )  # fmt: skip
    assert_evidence(found, tiny_evidence())
    assert abs(found.upper - tiny_evidence()) < 4 * found.upper_error + 2e-3


def with_noise_scale(x, y=None):
    """`one_layer` at Z = X, with a prior on the noise's standard deviation."""
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 0.4))
    one_layer(x, y, z=ROWS[0], likelihood=lambda f: dist.Normal(f, scale))


def with_offsets(x, y=None):
    """`one_layer` at Z = X, with a latent value for each row."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), ROWS[0])
    with dgp.minibatch(x, y) as (x, y):
        offset = numpyro.sample("offset", dist.Normal(0, 0.5))
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + offset, 0.3)), obs=y)


def noise_scale_evidence():
    prior = stats.lognorm(0.4, scale=np.exp(-1.0))
    peak = exact_evidence(*ROWS, noise=0.3)
    density = lambda s: np.exp(exact_evidence(*ROWS, noise=s) - peak) * prior.pdf(s)  # noqa: E731
    return peak + np.log(integrate.quad(density, 1e-3, 3.0, points=[0.2, 0.3, 0.5])[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "truth"),
    [
        (with_noise_scale, noise_scale_evidence()),
        (with_offsets, exact_evidence(*ROWS, noise=np.hypot(0.3, 0.5))),
    ],
    ids=["a positive hyperparameter", "a value for each row"],
)
def test_other_latent_sites_are_annealed_too(model, truth):
    """The bounds of both targets agree here: v determines f at the data."""
    guide = dgp.MeanField(model)
    result = dgp.fit(KEY, model, guide, *ROWS, steps=300, progress=False)
    assert evaluate(KEY, model, guide, result.params, *ROWS)[0] < truth
    for target in ("bound", "model"):
        found = annealed(model, guide, result, *ROWS, target=target, temperatures=100)
        assert_evidence(found, truth)
    if model is with_noise_scale:
        assert found.draws["scale"].shape == (64,)
        assert (found.draws["scale"] > 0).all()


QUIET: dict[str, Any] = {"progress": False}


@pytest.mark.slow
def test_from_an_implicit_fit():
    """Particles start from the Gaussian with the moments of its draws."""
    x, y = regression(rows=20)
    guide = dgp.Implicit(one_layer, noise_dim=2)
    params = dgp.fit(KEY, one_layer, guide, x, y, z=x, steps=60, **QUIET).params
    found = annealed_evidence(
        KEY, one_layer, guide, params, x, y, z=x, temperatures=100, num_particles=16, **QUIET
    )
    assert abs(found.log_evidence - exact_evidence(x, y)) < 4 * found.standard_error + 2e-3
    assert found.standard_error < 0.3


@pytest.mark.parametrize("target", [slow("bound"), "model"])
def test_from_the_prior(target):
    """The guide's q(v) does not matter."""
    far = TINY | {"l1.v.loc": jnp.full((1, 1), 30.0), "l2.v.loc": jnp.full((1, 1), np.nan)}
    found = annealed(
        tiny, dgp.MeanField(tiny), far, X, Y, target=target, start="prior", temperatures=100,
        num_particles=64, num_noise=32,
    )  # fmt: skip
    assert_evidence(found, tiny_evidence(bound=target == "bound"))


DATA = jnp.asarray(X, float), jnp.asarray(Y, float)
QUIET: dict[str, Any] = {"progress": False}


# --- the standard error, and warnings -------------------------------------------------------------


@functools.cache
def fitted_tiny():
    guide = dgp.MeanField(tiny)
    fit = dgp.fit(KEY, tiny, guide, *DATA, steps=600, learning_rate=0.03, **QUIET)
    return guide, fit.params


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:annealed_evidence")
def test_the_error_knows_of_the_noise():
    """Two layers: every group of eight particles is an estimate of a known evidence."""
    guide, params = fitted_tiny()
    found = annealed_evidence(
        KEY, tiny, guide, params, *DATA, temperatures=100, num_particles=96, num_noise=16, **QUIET
    )
    truth = tiny_evidence(bound=True)
    assert abs(found.log_evidence - truth) < 4 * found.standard_error
    assert found.standard_error < 0.2
    groups = [log_mean(w)[:2] for w in found.log_weights.reshape(12, 8)]
    z = np.array([(value - truth) / error for value, error in groups])
    assert np.mean(z**2) < 3.5  # of Student's t with 7 degrees: 1.4, with a standard error of 0.8


def test_few_temperatures_are_warned_of():
    params, _ = fitted(1)
    with pytest.warns(UserWarning, match="annealed_evidence: ") as warned:
        found = annealed(one_layer, GUIDE, params, *ROWS, z=ROWS[0], temperatures=2)
    assert [str(w.message).split(": ", 1)[1] for w in warned] == list(found.warnings)
    assert "64 particles are worth" in found.warnings[0]
    assert found.effective_particles < 32


# --- particles as draws ---------------------------------------------------------------------------


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


def exact():
    """Return the evidence, and the posterior probability of the right mode."""
    v = np.linspace(-6, 6, 100_001)
    joint = stats.norm.pdf(v) * (SHARES * stats.norm.pdf(v[:, None], MODES, SD)).sum(axis=1)
    return np.log(joint.sum() * (v[1] - v[0])), joint[v > 0].sum() / joint.sum()


@pytest.mark.slow
def test_two_modes_have_their_weights():
    """Within five percent, and within the error of the particles' worth."""
    (evidence, right), guide = exact(), dgp.MeanField(two_modes)
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


def test_particles_go_to_arviz_and_to_predictions():
    """Resampled by their weights; ArviZ has the weight of each."""
    (x, _), options = ROWS, {"z": ROWS[0]}
    params, _ = fitted(400)
    chains = annealed(one_layer, GUIDE, params, *ROWS, temperatures=50, **options).chains
    options |= {"posterior_samples": chains, "num_samples": 64}
    tree = dgp.to_inferencedata(KEY, one_layer, None, {}, *ROWS, num_prior_samples=0, **options)
    v = np.asarray(chains.spaced(64).samples["l1.v"])
    np.testing.assert_array_equal(tree["posterior"]["l1.v"], v)
    assert tree["sample_stats"]["log_weight"].shape == chains.shape
    p = dgp.predict(KEY, one_layer, None, {}, x, **options)
    L = np.linalg.cholesky(squared_exponential(x, x) + 1e-6 * 1.5 * np.eye(20))
    np.testing.assert_allclose(p.mean, L @ v.mean(axis=(0, 1))[:, 0], atol=0.01)
