"""`HeteroscedasticNormal`: its closed form, its predictive density, and its use."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from support.helpers import KEY, assert_mean, slow

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.likelihoods import HeteroscedasticNormal

SCALE = 0.3
# Mean and variance of f1, mean and variance of f2, and y.
GRID = [
    (m1, v1, m2, v2, y)
    for m1, y in ((0.0, 0.1), (2.0, -1.5), (-30.0, -29.0))
    for v1 in (1e-12, 1e-2, 1.0, 1e6)
    for m2 in (-4.0, 0.0, 3.0)
    for v2 in (1e-12, 1e-2, 1.0, 4.0)
]


def observed(m1, v1, m2, v2):
    latent = jnp.array([[m1, m2]])
    return HeteroscedasticNormal(latent, SCALE), jnp.array([[v1, v2]])


def expectation(function, m2, v2):
    """Integrate a function of f2 against its Gaussian, in pieces of a third of its width."""
    sd = np.sqrt(v2)
    ends = m2 + sd * np.linspace(-12, 12, 73)
    density = stats.norm(m2, sd).pdf
    return sum(
        integrate.quad(lambda g: function(g) * density(g), a, b)[0] for a, b in pairwise(ends)
    )


@pytest.mark.parametrize("case", [GRID[5], *map(slow, GRID[::7])])
def test_expectations_are_integrals(x64, case):
    m1, v1, m2, v2, y = case
    likelihood, var = observed(m1, v1, m2, v2)

    def given(g):  # the expectation over f1 has a closed form
        log_p = stats.norm(m1, SCALE * np.exp(g)).logpdf(y)
        return log_p - 0.5 * v1 * np.exp(-2 * g) / SCALE**2

    wanted = expectation(given, m2, v2)
    found = likelihood.expected_log_prob(var, jnp.array([y]), 20)[0]
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    density = expectation(
        lambda g: stats.norm(m1, np.sqrt(v1 + SCALE**2 * np.exp(2 * g))).pdf(y), m2, v2
    )
    if density > 1e-250:
        log_p = likelihood.predictive(var).log_prob(jnp.array([y]))[0]
        assert log_p == pytest.approx(np.log(density), abs=1e-3)


@pytest.mark.parametrize("variance", [1e-12, 1.0, 1e6])
def test_gradients_are_finite_in_float32(variance):
    def bound(latent):
        var = jnp.full((1, 2), variance)
        return HeteroscedasticNormal(latent).expected_log_prob(var, jnp.array([0.5]), 20)[0]

    latents = jnp.array([[[0.0, g]] for g in (-100.0, -15.0, 0.0, 15.0, 80.0)])
    for found in jax.vmap(jax.value_and_grad(bound))(latents):
        assert np.isfinite(found).all()


def test_moments_draws_and_the_distribution_function(x64):
    likelihood, var = observed(1.0, 0.5, -0.2, 0.3)
    predictive = likelihood.predictive(var)
    variance = 0.5 + SCALE**2 * np.exp(-0.4 + 2 * 0.3)
    assert predictive.mean[0] == pytest.approx(1.0)
    assert predictive.variance[0] == pytest.approx(variance, rel=1e-6)
    draws = np.asarray(predictive.sample(KEY, (20_000,)))[:, 0]
    assert_mean(draws, 1.0)
    assert_mean((draws - 1.0) ** 2, variance)
    assert_mean((draws < 1.5) * 1.0, float(predictive.cdf(1.5)[0]))
    given = np.asarray(likelihood.sample(KEY, (20_000,)))[:, 0]
    assert_mean((given - 1.0) ** 2, float(likelihood.variance[0]))


def test_it_wants_two_outputs():
    with pytest.raises(ValueError, match=r"latent has shape \(3, 1\), wanted \[\.\.\., 2\]"):
        likelihoods.heteroscedastic(jnp.zeros((3, 1)))


@pytest.mark.slow
def test_it_finds_noise_that_grows():
    """On data whose noise grows with x its log density is higher than with one noise for all."""
    options = {"splits": 1, "steps": 6000, "inducing": 20, "progress": False}
    rows = {
        name: dgp.compare("heteroscedastic", ["svgp"], likelihood=name, **options)
        for name in ("gaussian", "heteroscedastic")
    }
    density = {name: found.splits[0]["log_density"] for name, found in rows.items()}
    assert density["heteroscedastic"] > density["gaussian"] + 0.1
    run = rows["heteroscedastic"].fits["svgp"]
    p = run.fitted.predict(KEY, np.array([[-0.9], [0.9]]), standardizer=run.standardizer)
    assert p.var[1] > 2 * p.var[0]
