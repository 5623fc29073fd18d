"""Sums over passes, and the bias that few passes give LOO, on synthetic densities."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from dgp_ppl.inferencedata._loo_bias import LooBias, PassSums, loo_bias

add = jax.jit(PassSums.add)


def sums_of(terms, blocks=1):
    """The sums over passes, [K, ...], added in blocks of which the last is padded by NaN."""
    passes, size = len(terms), -(-len(terms) // blocks)
    padding = np.full((size * blocks - passes, *terms.shape[1:]), np.nan)
    padded = jnp.asarray(np.concatenate([terms, padding]))
    sums = PassSums.empty(terms.shape[1:], padded.dtype)
    for i in range(blocks):
        rows = slice(i * size, (i + 1) * size)
        sums = add(sums, padded[rows], jnp.arange(rows.start, rows.stop), jnp.asarray(passes))
    return sums


def bias_of(log_p, passes, sd, rng):
    """The bias of LOO by row for densities [S, N], with log-normal noise in each pass."""
    noise = rng.normal(-0.5 * sd**2, sd, (passes, *log_p.shape))
    found = jax.jit(loo_bias)(sums_of(log_p + noise), jnp.asarray(passes))
    found = [np.asarray(a) for a in found]
    return LooBias(*found, np.ones(log_p.shape[1], bool))


def test_blocks_of_passes_add_up():
    for passes, blocks in ((1, 1), (7, 3)):
        terms = np.random.default_rng(0).normal(-3, 1, (passes, 4, 5))
        sums = sums_of(terms, blocks)
        mean, error = sums.log_mean(jnp.asarray(passes))
        np.testing.assert_allclose(mean, logsumexp(terms, axis=0) - math.log(passes), rtol=1e-5)
        p = np.exp(terms)
        wanted = p.var(axis=0, ddof=min(1, passes - 1)) / p.mean(axis=0) ** 2 / passes
        np.testing.assert_allclose(error, wanted, rtol=1e-4, atol=1e-6)
    halves, _ = sums.log_means_of_halves(jnp.asarray(passes))
    wanted = np.log(np.stack([p[i::2].mean(axis=0) for i in range(2)], axis=-1))
    np.testing.assert_allclose(halves, wanted, rtol=1e-5, atol=1e-5)


def test_the_correction_removes_the_bias_of_few_passes():
    """At the same draws LOO is known: the harmonic mean of p over draws."""
    rng = np.random.default_rng(1)
    for sd in (0.3, 0.7):
        log_p = rng.normal(-1, 0.3, (200, 300))
        true = -logsumexp(-log_p, axis=0) + math.log(len(log_p))
        bias = bias_of(log_p, 10, sd, rng)
        error = bias.elpd - true
        se = error.std(ddof=1) / math.sqrt(len(true))
        raw = (error - bias.correction).mean()
        first_order = -math.expm1(sd**2) / 10
        assert raw == pytest.approx(first_order, rel=0.3)
        assert abs(raw) > 10 * se
        assert abs(error.mean()) < 0.2 * abs(raw) + 4 * se
        # The estimate of the bias that is left bounds it.
        assert abs(error.mean()) < abs(bias.total) / len(true) + 4 * se


def test_more_passes_are_wanted_until_the_bias_is_small():
    rng = np.random.default_rng(2)
    log_p = rng.normal(-1, 0.3, (100, 200)) + rng.normal(0, 1, 200)
    few = bias_of(log_p, 4, 0.7, rng)
    assert abs(few.total) > 0.1 * few.se
    assert few.wanted_factor > 1
    more = bias_of(log_p, 4 * few.wanted_factor, 0.7, rng)
    assert abs(more.total) < 0.1 * more.se
    assert more.wanted_factor == 1


def test_the_bias_of_a_single_pass_is_unknown():
    rng = np.random.default_rng(3)
    bias = bias_of(rng.normal(-1, 0.3, (50, 20)), 1, 0.5, rng)
    assert math.isnan(bias.total)
    assert bias.wanted_factor == 1
    np.testing.assert_array_equal(bias.correction, 0.0)
