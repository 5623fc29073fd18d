"""The log mean of weights, and its standard error."""

import numpy as np
import pytest

from dgp_ppl.inference.evidence._weights import log_mean


def test_the_error_of_few_unequal_weights():
    """Log-normal weights of scale 2; their sample variance gives a 1.77 times smaller error."""
    w = 2 * np.random.default_rng(0).standard_normal((2, 2000, 8))
    (a, b), errors = np.moveaxis([[log_mean(row)[:2] for row in half] for half in w], 2, 0)
    z = (a - b) / np.hypot(*errors)
    assert 1.1 < np.sqrt(np.mean(z**2)) < 1.5
    equal = log_mean(np.full(8, 3.0))
    assert equal == pytest.approx((3.0, 0.0, 8.0), abs=1e-6)
