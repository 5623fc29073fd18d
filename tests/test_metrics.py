"""Metrics against definitions and closed forms."""

import numpy as np
import pytest
from scipy import integrate, stats

from dgp_ppl import metrics
from dgp_ppl.metrics import crps_gaussian_mixture, crps_samples


def mixture(seed, points=7, components=5):
    """Return targets [N], and means and standard deviations [S, N]."""
    random = np.random.default_rng(seed)
    y, means = random.normal(size=points), random.normal(size=(components, points))
    return y, means, random.uniform(0.1, 2.0, (components, points))


def integrated(y, means, sds):
    """Return the integral that defines the score, for one target."""
    squared = lambda z: (np.mean(stats.norm.cdf(z, means, sds)) - (z >= y)) ** 2  # noqa: E731
    low, high = (end(means) + side * 12 * sds.max() for end, side in ((min, -1), (max, 1)))
    return sum(
        integrate.quad(squared, *ends, limit=200)[0]
        for ends in ((min(low, y), y), (y, max(high, y)))
    )


def test_errors_log_densities_and_coverage():
    assert metrics.rmse([1.0, 2.0], [1.0, 4.0]) == pytest.approx(np.sqrt(2))
    with pytest.warns(UserWarning, match=r"metrics: y is NaN in 1 of 1 rows \[0\]"):
        assert np.isnan(metrics.rmse([np.nan], [1.0]))
    assert metrics.mean_log_density([-1.0, -2.0, -6.0]) == -3.0
    assert metrics.mean_log_density([-1.0, -np.inf]) == -np.inf
    ends = [0.0, 0.0, 0.0, 3.5], [1.0, 1.0, 1.0, 4.0]
    assert metrics.interval_coverage([0.0, 1.0, 2.0, 3.0], *ends) == 0.5
    y = np.random.default_rng(0).normal(size=20_000)
    half = np.full(20_000, stats.norm.ppf(0.95))
    assert metrics.interval_coverage(y, -half, half) == pytest.approx(0.9, abs=0.01)
    with pytest.warns(UserWarning, match="and so is the result"):
        assert np.isnan(metrics.interval_coverage([0.0, np.nan], [0.0, 0.0], [1.0, 1.0]))


def test_crps_of_a_mixture_is_the_integral_that_defines_it(monkeypatch):
    y, means, sds = mixture(0)
    expected = [integrated(y[n], means[:, n], sds[:, n]) for n in range(len(y))]
    found = crps_gaussian_mixture(y, means, sds)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    shifted = crps_gaussian_mixture(y + 1e6, means + 1e6, sds)
    np.testing.assert_allclose(shifted, found, rtol=1e-8)
    monkeypatch.setattr(metrics, "_CELLS", 10)  # chunks of two targets
    np.testing.assert_allclose(crps_gaussian_mixture(y, means, sds), found, rtol=1e-14)


def test_vanishing_deviations_are_point_masses():
    y, means, _ = mixture(4)
    means[:2] = y  # point masses exactly at the target
    pairs = np.abs(means[:, None] - means).mean(axis=(0, 1)) / 2
    expected = np.abs(means - y).mean(axis=0) - pairs
    for sd in (0.0, 1e-320, 1e-300, 1e-160, 1e-12):
        found = crps_gaussian_mixture(y, means, np.full_like(means, sd))
        np.testing.assert_allclose(found, expected, atol=1e-11, err_msg=str(sd))
    assert crps_gaussian_mixture([2.0], [[2.0]], [[0.0]])[0] == 0.0


def test_crps_of_draws_is_the_double_sum():
    random = np.random.default_rng(0)
    y, draws = random.normal(size=6), random.normal(size=(9, 6)).round(1)  # with ties
    given = draws.copy()
    pairs = np.abs(draws[:, None] - draws[None]).sum(axis=(0, 1)) / (9 * 8)
    expected = np.abs(draws - y).mean(axis=0) - pairs / 2
    np.testing.assert_allclose(crps_samples(y, draws), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(draws, given)


WRONG = [
    # A wrong shape, such as [N, 1] for [N], would broadcast to [N, N].
    (lambda: metrics.rmse(np.zeros(3), np.zeros((3, 1))), r"mean: .*wanted \[3\]"),
    (lambda: metrics.rmse(np.zeros((3, 1)), np.zeros(3)), r"y: .*\[N\]"),
    (lambda: metrics.rmse([], []), "y: .*length 1"),
    (lambda: metrics.mean_log_density(np.zeros((3, 2))), "log_density"),
    (lambda: metrics.interval_coverage(np.zeros(3), np.zeros((3, 1)), np.ones(3)), "lower"),
    (lambda: metrics.interval_coverage([0.0, 0.0], [0.0, 1.0], [1.0, 0.0]), "upper: got 1"),
    (lambda: crps_gaussian_mixture(np.zeros(7), np.zeros(7), 1), r"means: .*\[S, 7\]"),
    (lambda: crps_gaussian_mixture([0.0], [[0.0]], [1.0]), r"sds: .*\[1, 1\]"),
    (lambda: crps_gaussian_mixture([0.0], [[0.0]], [[-0.5]]), "sds: .*at least 0"),
    (lambda: crps_samples(np.zeros(3), np.zeros((3, 1))), r"samples: .*\[S, 3\]"),
    (lambda: crps_samples([1.0], [[3.0]]), "samples: .*at least 2"),
]


def test_wrong_arguments_are_named():
    for call, pattern in WRONG:
        with pytest.raises(ValueError, match=pattern):
            call()
