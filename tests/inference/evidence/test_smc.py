"""Sequential Monte Carlo with exact moves: unbiased, with honest errors and doubts."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from scipy import stats
from support.helpers import KEY, assert_mean

from dgp_ppl._progress import Progress
from dgp_ppl.inference.evidence._smc import Plan, Run, anneal, pilot
from dgp_ppl.inference.evidence._target import Arrays, Points, Target
from dgp_ppl.inference.evidence._weights import Estimate, doubts, estimate, log_mean

MEAN, SDS = np.array([2.0, -1.0, 0.0]), np.array([0.1, 0.5, 1.0])
LOG_EVIDENCE = -1.7
ARRAYS = Arrays({}, None)
BAR = Progress(False, None, "")


class Path(Target):
    """From N(0, I) to N(MEAN, SDS²) times an evidence. A move is an exact draw."""

    dim = 3

    def __init__(self, moves=True):
        self.moves = moves

    def points(self, z, noise, arrays):
        z = np.asarray(z, np.float64)
        log_q = -0.5 * np.sum(z**2, axis=1)
        log_p = -0.5 * np.sum(((z - MEAN) / SDS) ** 2, axis=1) - np.log(SDS).sum()
        return Points(z, LOG_EVIDENCE + log_p - log_q, z)

    def move(self, key, points, noise, beta, size, scale, arrays):
        rates = jnp.full(len(points.z), 0.8)
        if not self.moves:
            return points, rates
        precision = (1 - beta) + beta / SDS**2
        mean = beta * MEAN / SDS**2 / precision
        z = mean + np.asarray(random.normal(key, points.z.shape)) / np.sqrt(precision)
        return self.points(z, noise, arrays), rates


def plan(betas):
    K = len(betas) - 1
    return Plan(np.array(betas), np.ones(K), np.ones((K, 3)))


def run(path: Any, betas, islands, particles):
    z = random.normal(KEY, (islands, particles, 3))
    return anneal(KEY, path, z, random.split(KEY, (islands, 1)), plan(betas), ARRAYS, BAR)


def test_islands_are_unbiased_and_the_error_is_theirs():
    """The mean of the islands' estimates is the evidence, though most islands resample.

    Intervals of eight islands hold it; what they miss is mostly above them.
    """
    found = run(Path(), [0.0, 0.01, 0.03, 0.1, 0.3, 1.0], 4000, 8)
    assert (found.resampled > 1000).sum() >= 3
    islands = np.exp(found.log_weights - LOG_EVIDENCE).mean(axis=1)
    assert_mean(islands, 1.0)
    value = estimate(found.log_weights, found.ancestors)
    assert abs(value.log_evidence - LOG_EVIDENCE) < 4 * value.standard_error < 0.2
    # Families tell of the variance that even weights hide: within a factor of two of the truth.
    worth = 1 / (1 / islands.size / 8 + value.standard_error**2)
    assert 0.5 < value.effective_particles / worth < 2
    flat = np.exp(found.log_weights - found.log_weights.max())
    assert flat.sum() ** 2 / np.sum(flat**2) > 3 * value.effective_particles
    parts = zip(np.split(found.log_weights, 500), np.split(found.ancestors, 500), strict=True)
    few = [estimate(*part) for part in parts]
    z = np.array([(e.log_evidence - LOG_EVIDENCE) / e.standard_error for e in few])
    beyond = np.abs(z) > stats.t.ppf(0.975, 7)
    assert beyond.mean() < 0.05 + 3 * 0.01
    assert (z[beyond] < 0).mean() > 0.5


def test_islands_of_one_particle_are_annealed_importance_sampling():
    found = run(Path(), np.linspace(0, 1, 20) ** 4, 500, 1)
    assert not found.resampled.any()
    assert (found.ancestors == 0).all()
    assert_mean(np.exp(found.log_weights - LOG_EVIDENCE)[:, 0], 1.0)


def test_particles_are_draws_of_the_posterior():
    """Weighted, with moves or without."""
    for path, betas in ((Path(), np.linspace(0, 1, 30) ** 3), (Path(moves=False), [0, 1])):
        found = run(path, betas, 20, 2000)
        weights = np.exp(found.log_weights - found.log_weights.max())
        z = np.asarray(found.points.z).reshape(20, 2000, 3)
        means = np.sum(weights[..., None] * z, axis=1) / weights.sum(axis=1)[:, None]
        assert_mean(means, MEAN)


def test_a_weight_of_zero_is_dropped():
    """A density of NaN has no weight, and an island without any finite weight has none."""

    class Broken(Path):
        def points(self, z, noise, arrays):
            points = super().points(z, noise, arrays)
            ratio = np.where(np.arange(len(z)) < 12, np.nan, points.ratio)
            return points._replace(ratio=ratio)

    found = run(Broken(moves=False), [0.0, 0.5, 1.0], 3, 8)
    assert np.isneginf(found.log_weights[0]).all()
    assert np.isfinite(found.log_weights[1:]).all()
    assert not np.isin(found.ancestors[1], [0, 1, 2, 3]).any()


def test_the_pilot_spaces_temperatures_evenly():
    """Neighbours of its plan have the same conditional effective sample size."""
    z = random.normal(KEY, (4000, 3))
    path: Any = Path()
    found = pilot(KEY, path, z, random.split(KEY, 1), ARRAYS, 12, BAR)
    assert BAR.total > 1  # an estimate for the time that is left
    assert found.betas[0] == 0
    assert found.betas[-1] == 1
    assert len(found.sizes) == len(found.scales) == 12
    distances = [distance(a, b) for a, b in zip(found.betas[:-1], found.betas[1:], strict=True)]
    assert max(distances) < 1.35 * min(distances)
    default = pilot(KEY, path, z, random.split(KEY, 1), ARRAYS, None, BAR)
    length = np.sum(distances)
    assert len(default.sizes) == pytest.approx(max(20, length**2), rel=0.25)
    # The sd of each coordinate at the last temperature, but for 4000 draws' error.
    np.testing.assert_allclose(found.scales[-1], SDS, rtol=0.1)


def distance(a, b):
    """Relative sd of the weights from one inverse temperature to another, in closed form."""

    def log_normalizer(beta):
        precision = (1 - beta) + beta / SDS**2
        linear = beta * MEAN / SDS**2
        constant = -0.5 * beta * np.sum(MEAN**2 / SDS**2)
        return constant + np.sum(0.5 * linear**2 / precision - 0.5 * np.log(precision))

    step = b - a
    second = log_normalizer(a + 2 * step) + log_normalizer(a) - 2 * log_normalizer(b)
    return np.sqrt(np.expm1(second))


ALONE = np.tile(np.arange(16), (8, 1))  # each particle is its own ancestor
DRAWS = np.random.default_rng(0).standard_normal((8, 16))


def test_the_error_of_few_unequal_weights():
    """Log-normal weights of scale 2; their sample variance gives a 1.77 times smaller error."""
    w = 2 * np.random.default_rng(0).standard_normal((2, 2000, 8))
    (a, b), errors = np.moveaxis([[log_mean(row)[:2] for row in half] for half in w], 2, 0)
    z = (a - b) / np.hypot(*errors)
    assert 1.1 < np.sqrt(np.mean(z**2)) < 1.5
    equal = log_mean(np.full(8, 3.0))
    assert equal == pytest.approx((3.0, 0.0, 8.0), abs=1e-6)


def weighted_run(ancestors=ALONE, acceptance=0.8):
    none: object = None
    return Run(none, np.zeros((8, 16)), ancestors, np.full(40, acceptance), np.zeros(40))


def test_families_count_once():
    """Sixteen particles of one ancestor are worth one."""
    even = np.zeros((8, 16))
    assert estimate(even, ALONE).effective_particles == pytest.approx(128)
    assert estimate(even, np.zeros_like(ALONE)).effective_particles == pytest.approx(8)
    assert estimate(even, ALONE // 2).effective_particles == pytest.approx(64)


def test_each_doubt_has_its_text():
    sound = estimate(np.zeros((8, 16)), ALONE)
    (text,) = doubts(sound, weighted_run(), DRAWS + 3.0 * (np.arange(8) < 2)[:, None])
    assert text.startswith("the islands' mean log densities differ")
    (text,) = doubts(sound, weighted_run(acceptance=0.3), DRAWS)
    assert "acceptance falls to 0.30 (wanted about 0.8)" in text
    (text,) = doubts(estimate(np.zeros((4, 16)), ALONE[:4]), weighted_run(ALONE[:4]), DRAWS[:4])
    assert text.startswith("4 islands hardly tell the error")
    few = Estimate(0.0, 0.1, np.zeros((8, 16)), 20.0)
    (text,) = doubts(few, weighted_run(), DRAWS)
    assert "128 particles are worth 20.0 independent ones" in text
