"""Likelihoods of counts against SciPy, and NumPyro's with the rate itself."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl.likelihoods import NegativeBinomialLog, PoissonLog
from dgp_ppl.likelihoods._counts import distribution_function, draw

LOGS = np.linspace(-12, 6, 19)
KINDS = {
    "poisson": (PoissonLog, lambda f: stats.poisson(np.exp(f))),
    "negative_binomial": (
        lambda f: NegativeBinomialLog(f, 3.0),
        lambda f: stats.nbinom(3.0, 3.0 / (3.0 + np.exp(f))),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_densities_moments_draws_and_pytrees(kind):
    make, scipys = KINDS[kind]
    ours, exact = make(jnp.asarray(LOGS)), scipys(LOGS)
    both = jax.jit(lambda y: (ours.log_prob(y), ours.cdf(y)))
    for y in (0, 1, 20, 500):
        log_p, below = both(jnp.full(19, y))
        np.testing.assert_allclose(log_p, exact.logpmf(y), rtol=2e-5, atol=5e-4)
        np.testing.assert_allclose(below, exact.cdf(y), atol=1e-4)
    np.testing.assert_allclose(ours.mean, exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(ours.variance, exact.var(), rtol=1e-5)
    some = make(jnp.array([-100.0, 0.5, 2.0]))
    draws = np.asarray(some.sample(KEY, (20_000,)), float)
    assert_mean(draws, some.mean)
    assert_mean(np.square(draws - np.asarray(some.mean)), some.variance)
    again = jax.jit(lambda d: d)(some)
    np.testing.assert_array_equal(again.log_prob(jnp.array(3)), some.log_prob(jnp.array(3)))


def test_large_counts_keep_their_digits():
    """NumPyro's densities of such counts are off by 0.5 to 100 nats in float32."""
    mean, concentration = (
        a.ravel()
        for a in np.meshgrid([1.0, 16.0, 100.0, 1e4, 1e6, 1e8], [0.5, 3.0, 100.0, 1e5, np.inf])
    )
    f = np.log(mean).astype(np.float32)
    mean = np.exp(f.astype(float))
    is_poisson = np.isinf(concentration)
    size = np.where(is_poisson, 1.0, concentration)
    sd = np.sqrt(mean + np.where(is_poisson, 0.0, mean**2 / size))
    both = jax.jit(lambda d, y: (d.log_prob(y), d.cdf(y)))
    for away in (-3, -1, 0, 1, 3):
        y = np.floor(np.maximum(0, mean + away * sd)).astype(np.float32)
        # f is rounded to 1e-7 of its value, and log p changes by (y - mean) times the rounding.
        error = 3e-6 * np.abs(y - mean) * np.minimum(1.0, concentration / mean)
        for ours, scipys, kept in (
            (PoissonLog(f), stats.poisson(mean), is_poisson),
            (NegativeBinomialLog(f, size), stats.nbinom(size, size / (size + mean)), ~is_poisson),
        ):
            log_p, below = both(ours, jnp.asarray(y))
            off = np.abs(log_p - scipys.logpmf(y))
            np.testing.assert_array_less(off[kept], (5e-5 + error)[kept])
            np.testing.assert_allclose(below[kept], scipys.cdf(y)[kept], atol=1e-3)
            assert (both(ours, jnp.full(len(f), -1.0))[1] == 0).all()


def test_the_distribution_function_has_finite_derivatives_in_empty_tails():
    f, y = jnp.array([-100.0, 0.0, 80.0]), jnp.array([0.0, 5.0, 1e6])
    slopes = jax.vmap(jax.vmap(jax.grad(lambda f, y: PoissonLog(f).cdf(y)), (0, None)), (None, 0))
    assert np.isfinite(jax.jit(slopes)(f, y)).all()


def test_the_concentration_has_a_gradient():
    """It equals the gradient of NumPyro's form, and is finite where NumPyro's is not."""
    f, y = jnp.array([-100.0, -50.0, 0.3, 3.0, 80.0]), jnp.array([2, 0, 1, 40, 5])
    total = lambda make: jax.jit(jax.vmap(jax.grad(make, (0, 1)), (0, None, 0)))  # noqa: E731
    ours = total(lambda f, c, y: NegativeBinomialLog(f, c).log_prob(y))
    theirs = total(lambda f, c, y: dist.NegativeBinomial2(jnp.exp(f), c).log_prob(y))
    for c in (1e-2, 3.0, 100.0):
        for a, b in zip(ours(f, c, y), theirs(f, c, y), strict=True):
            assert np.isfinite(a).all()
            np.testing.assert_allclose(a[2:4], b[2:4], rtol=2e-3, atol=1e-3)


P = np.array([1e-4, 0.2, 0.5, 0.97])
COUNTS = {
    "binomial": (dist.Binomial(2000, probs=jnp.asarray(P)), stats.binom(2000, P)),
    "logits": (dist.Binomial(9, logits=jnp.log(P / (1 - P))), stats.binom(9, P)),
    "beta": (dist.BetaBinomial(2 + P, 3.0, 40), stats.betabinom(40, 2 + P, 3.0)),
    "geometric": (dist.Geometric(jnp.asarray(P)), stats.geom(P, loc=-1)),
    "poisson": (dist.Poisson(3e6 * P), stats.poisson(3e6 * P)),
    "negative": (dist.NegativeBinomial2(3e6 * P, 70.0), stats.nbinom(70, 70 / (70 + 3e6 * P))),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_numpyros_counts_have_distribution_functions_and_draws(kind):
    """NumPyro lacks the first four, and its others are noise at a million in float32."""
    ours, exact = COUNTS[kind]
    levels = np.array([[0.01], [0.4], [0.9999]])
    y = exact.ppf(levels)
    if kind != "beta":
        below = jax.jit(jax.vmap(lambda y: distribution_function(ours, y)))(y)
        np.testing.assert_allclose(below, exact.cdf(y), atol=1e-3)
        assert (distribution_function(ours, -1.0) == 0).all()
    if kind in ("binomial", "beta"):
        keys = jax.random.split(KEY, 5_000)
        draws = np.asarray(jax.jit(jax.vmap(lambda key: draw(ours, key)))(keys), float)
        assert_mean(draws, exact.mean())
        assert_mean(np.square(draws - exact.mean()), exact.var())
        for y in exact.ppf([[0.3], [0.7]]):
            assert_mean(draws <= y, exact.cdf(y))


def test_distribution_functions_beyond_the_ends_of_a_support():
    """NumPyro's are NaN or far outside of [0, 1]."""
    scale, y = np.exp([-1.0, 0.0, 1.0]), np.array([-2.5, 0.5, 2.0])
    pareto = distribution_function(dist.Pareto(jnp.array(scale), 3.5), 1.4)
    np.testing.assert_allclose(pareto, stats.pareto(3.5, scale=scale).cdf(1.4), rtol=1e-5)
    shift = dist.transforms.AffineTransform
    exact = stats.lognorm(0.5, 1.0)
    for sign, below in ((1.0, exact.cdf(y)), (-1.0, exact.sf(-y))):
        moved = dist.TransformedDistribution(dist.LogNormal(0.0, 0.5), shift(sign, sign))
        np.testing.assert_allclose(distribution_function(moved, jnp.array(y)), below, atol=1e-6)


def test_draws_at_the_ends():
    """No trials, no successes, no failures; a probability of NaN ends too."""
    ends = dist.Binomial(
        jnp.array([0, 7, 7, 7]), probs=jnp.array([0.3, 0.0, 1.0, jnp.nan]), validate_args=False
    )
    assert draw(ends, KEY)[:3].tolist() == [0, 0, 7]


@pytest.mark.parametrize("guided", [True, False])
def test_a_geometric_whose_probs_round_to_1_or_0(guided):
    """In float32 they do so from |f| = 17 and 104 on, where its log and their gradients end."""
    mean = jnp.array([-100.0, -30.0, -20.0, 0.0, 110.0])

    def total(mean, probs):
        means = jnp.tile(mean, 2)[:, None]
        marginals = dgp.Marginals(means, jnp.full((10, 1), 0.5), guided=guided)
        by_probs = lambda f: dist.Geometric(jax.nn.sigmoid(-f))  # noqa: E731
        by_logits = lambda f: dist.Geometric(logits=-f)  # noqa: E731
        y = dgp.observe(marginals, by_probs if probs else by_logits)
        terms = y.log_prob(jnp.repeat(jnp.array([0.0, 2.0]), 5))
        return terms.sum(), terms[:5]

    slope = jax.jit(jax.grad(total, has_aux=True), static_argnums=1)
    gradient, log_p = slope(mean, True)
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(log_p[:4], slope(mean, False)[1][:4], atol=1e-3)
