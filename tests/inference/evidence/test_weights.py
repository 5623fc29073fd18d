"""The log mean of weights, its standard error, and doubts about it."""

import numpy as np
import pytest

from dgp_ppl.inference.evidence._smc import Run
from dgp_ppl.inference.evidence._weights import Estimate, doubts, estimate, log_mean

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


def run(ancestors=ALONE, acceptance=0.8):
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
    (text,) = doubts(sound, run(), DRAWS + 3.0 * (np.arange(8) < 2)[:, None], "in reverse, ")
    assert text.startswith("in reverse, the islands' mean log densities differ")
    (text,) = doubts(sound, run(acceptance=0.3), DRAWS)
    assert "acceptance falls to 0.30 (wanted about 0.8)" in text
    few = Estimate(0.0, 0.1, np.zeros((8, 16)), 20.0)
    (text,) = doubts(few, run(), DRAWS)
    assert "128 particles are worth 20.0 independent ones" in text
