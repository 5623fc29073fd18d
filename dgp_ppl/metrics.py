"""Metrics of predictions that scikit-learn lacks: log densities, CRPS and coverage.

All functions compute in float64. N is the number of test points, and S the number of mixture
components or draws. Shapes must be exactly as documented, because [N] and [N, 1] would broadcast to
[N, N]: every function raises a `ValueError` for other shapes and for empty arrays. NaN gives NaN,
and a warning.
::

    metrics.rmse(y_test, p.mean)
    metrics.mean_log_density(p.log_prob(y_test))
    metrics.interval_coverage(y_test, *p.interval(0.9))

For classes, take the metrics of scikit-learn::

    sklearn.metrics.log_loss(y_test, p.probabilities)
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

from dgp_ppl._checks import as_array, bad_rows

__all__ = ["crps_gaussian_mixture", "crps_samples", "interval_coverage", "mean_log_density", "rmse"]

_CELLS = 2**16  # entries of a work array, so that a few of them fit in a processor's cache


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Return the root mean squared error, in the units of `y`.

    Args:
        y: targets [N].
        mean: predictions [N].

    Raises:
        ValueError: if a shape is wrong.
    """
    y = _array("y", y, "N")
    return float(np.sqrt(np.mean((y - _array("mean", mean, len(y))) ** 2)))


def mean_log_density(log_density: ArrayLike) -> float:
    """Return the mean over test points of the log predictive density, in nats.

    Args:
        log_density: log p(y_n), [N]: one value per point, with draws already averaged.

    Raises:
        ValueError: if the shape is wrong.
    """
    return float(np.mean(_array("log_density", log_density, "N")))


def crps_gaussian_mixture(y: ArrayLike, means: ArrayLike, sds: ArrayLike) -> np.ndarray:
    """Return the continuous ranked probability score of Gaussian mixtures; lower is better.

    The score is the integral over z of (F(z) - [y <= z])^2. With A(m, v) = E|m + sqrt(v) e| for a
    standard normal e, it has the closed form

        1/S sum_i A(y - mu_i, s_i^2) - 1/(2 S^2) sum_ij A(mu_i - mu_j, s_i^2 + s_j^2).

    Time is O(S^2 N), memory O(S N).

    Args:
        y: targets [N].
        means: means mu of the components, which have equal weights, [S, N].
        sds: their standard deviations s [S, N], at least 0; 0 is a point mass.

    Returns:
        The score of each point [N], in the units of `y`.

    Raises:
        ValueError: if a shape is wrong, or a standard deviation is negative.

    Source: Grimit, Gneiting, Berrocal and Johnson 2006, "The continuous ranked probability score
    for circular variables".
    """
    y = _array("y", y, "N")
    means = _array("means", means, "S", len(y))
    sds = _array("sds", sds, *means.shape)
    if (sds < 0).any():
        raise ValueError(f"sds: got {sds.min()}, wanted at least 0")
    size = max(1, _CELLS // len(means))
    parts = [slice(start, start + size) for start in range(0, len(y), size)]
    return np.concatenate([_crps(y[at], means[:, at], sds[:, at]) for at in parts])


def _crps(y: np.ndarray, means: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """Return the score of targets [N] under mixtures [S, N]."""
    S, variances = len(means), sds**2
    pairs = sds.sum(axis=0) / np.sqrt(np.pi)  # i = j
    for i in range(S - 1):  # i < j, each counted twice
        spread = np.sqrt(variances[i] + variances[i + 1 :])
        pairs += _mean_distance(means[i] - means[i + 1 :], spread).sum(axis=0)
    score = _mean_distance(means - y, sds).mean(axis=0) - pairs / S**2
    return np.maximum(score, 0.0)  # rounding can make it negative


def _mean_distance(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return E|mean + sd e| for a standard normal e; |mean| if sd is 0."""
    with np.errstate(over="ignore", under="ignore"):
        z = mean / (np.sqrt(2.0) * np.maximum(sd, np.finfo(np.float64).tiny))
        return mean * erf(z) + np.sqrt(2.0 / np.pi) * sd * np.exp(-(z**2))


def crps_samples(y: ArrayLike, samples: ArrayLike) -> np.ndarray:
    """Estimate the continuous ranked probability score from draws; lower is better.

    The score is mean_i |x_i - y| - sum_ij |x_i - x_j| / (2 S (S - 1)), computed by sorting in
    O(N S log S). It is unbiased for the score of the distribution behind the draws, and may be
    negative.

    Args:
        y: targets [N].
        samples: draws x of the predictive distributions [S, N]; at least two.

    Returns:
        The score of each point [N], in the units of `y`.

    Raises:
        ValueError: if a shape is wrong, or there is a single draw.

    Source: Ferro 2014, "Fair scores for ensemble forecasts".
    """
    y = _array("y", y, "N")
    errors = _array("samples", samples, "S", len(y)) - y
    S = len(errors)
    if S < 2:
        raise ValueError(f"samples: got {S} draw, wanted at least 2; draw more")
    distance = np.mean(np.abs(errors), axis=0)
    errors.sort(axis=0)
    # sum_{i<j} x_(j) - x_(i) adds the i-th smallest (from 0) i times, and subtracts it S - 1 - i.
    rank = 2.0 * np.arange(S) - (S - 1)
    return distance - rank @ errors / (S * (S - 1))


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the fraction of the targets inside their intervals, ends included.

    Args:
        y: targets [N].
        lower: lower ends [N].
        upper: upper ends [N], at least `lower`.

    Raises:
        ValueError: if a shape is wrong, or an upper end is below its lower end.
    """
    y = _array("y", y, "N")
    lower, upper = _array("lower", lower, len(y)), _array("upper", upper, len(y))
    crossed = int((upper < lower).sum())
    if crossed:
        raise ValueError(f"upper: got {crossed} ends below the lower ends, wanted none")
    if np.isnan([y, lower, upper]).any():
        return float("nan")
    return float(np.mean((lower <= y) & (y <= upper)))


def _array(name: str, value: ArrayLike, *shape: str | int) -> np.ndarray:
    """Return an array in float64; its lengths are numbers, or letters of any length but 0."""
    array = np.asarray(as_array("metrics", name, value), dtype=np.float64)
    pairs = zip(array.shape, shape, strict=False)
    if array.ndim != len(shape) or not all(a == b if isinstance(b, int) else a for a, b in pairs):
        wanted = ", ".join(map(str, shape))
        raise ValueError(f"{name}: got shape {array.shape}, wanted [{wanted}], of length 1 or more")
    if (bad := np.isnan(array)).any():
        what = f"metrics: {name} is NaN in {bad_rows(bad)}, and so is the result"
        warnings.warn(what, stacklevel=3)
    return array
