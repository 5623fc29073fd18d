"""Metrics of predictions: errors, log densities, CRPS, intervals and classification.

All functions compute in float64. N is the number of test points, S of mixture components or draws,
and C of classes. Shapes must be exactly as documented, because [N] and [N, 1] would broadcast to
[N, N]: every function raises a `ValueError` for other shapes and for empty arrays. NaN in
real-valued predictions gives NaN. Invalid probabilities raise a `ValueError`. ::

    metrics.rmse(y_test, p.mean)
    metrics.mean_log_density(p.log_prob(y_test))
    metrics.interval_coverage(y_test, *p.interval(0.9))
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

__all__ = [
    "accuracy", "auc", "brier", "crps_gaussian_mixture", "crps_samples",
    "expected_calibration_error", "interval_coverage", "interval_width", "log_loss",
    "mean_and_standard_error", "mean_log_density", "rmse",
]  # fmt: skip

_CELLS = 2**16  # entries of a work array, so that a few of them fit in a processor's cache
_SUM_TOLERANCE = 1e-4  # allows for sums of probabilities in float32


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Return the root mean squared error, in the units of `y`.

    Args:
        y: targets [N].
        mean: predictions [N].

    Raises:
        ValueError: if a shape is wrong.
    """
    y = _vector("y", y)
    mean = _array("mean", mean, y.shape)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def mean_log_density(log_density: ArrayLike) -> float:
    """Return the mean over test points of the log predictive density, in nats.

    Args:
        log_density: log p(y_n), [N]: one value per point, with draws already averaged.

    Raises:
        ValueError: if the shape is wrong.
    """
    return float(np.mean(_vector("log_density", log_density)))


def crps_gaussian_mixture(
    y: ArrayLike, means: ArrayLike, sds: ArrayLike, weights: ArrayLike | None = None
) -> np.ndarray:
    """Return the continuous ranked probability score of Gaussian mixtures; lower is better.

    The score is the integral over z of (F(z) - [y <= z])^2. With A(m, v) = E|m + sqrt(v) e| for a
    standard normal e, it has the closed form

        sum_i w_i A(y - mu_i, s_i^2) - 1/2 sum_ij w_i w_j A(mu_i - mu_j, s_i^2 + s_j^2).

    Time is O(S^2 N), memory O(S N).

    Args:
        y: targets [N].
        means: component means mu [S, N].
        sds: component standard deviations s [S, N], at least 0; 0 is a point mass.
        weights: w [S] or [S, N], with sums of 1 over S; None for equal weights.

    Returns:
        The score of each point [N], in the units of `y`.

    Raises:
        ValueError: if a shape is wrong, a standard deviation or a weight is negative, or weights do
            not sum to 1.

    Source: Grimit, Gneiting, Berrocal and Johnson 2006, "The continuous ranked probability score
    for circular variables".
    """
    y = _vector("y", y)
    means = _components("means", means, y)
    sds = _array("sds", sds, means.shape)
    if (sds < 0).any():
        raise ValueError(f"sds: got {sds.min()}, wanted at least 0")
    weights = _weights(weights, means.shape)
    size = max(1, _CELLS // len(means))
    result = np.empty_like(y)
    for start in range(0, len(y), size):
        at = slice(start, start + size)
        result[at] = _crps(y[at], means[:, at], sds[:, at], weights[:, at])
    return result


def crps_samples(y: ArrayLike, samples: ArrayLike, *, fair: bool = True) -> np.ndarray:
    """Estimate the continuous ranked probability score from draws; lower is better.

    The score is mean_i |x_i - y| - c sum_ij |x_i - x_j| / 2, computed by sorting in
    O(N S log S). With `fair`, c = 1 / (S (S - 1)): the estimate is unbiased for the score of the
    distribution behind the draws, and may be negative. Otherwise c = 1 / S^2: the score of the
    empirical distribution of the draws, which is too large by about 1/S of the spread.

    Args:
        y: targets [N].
        samples: draws x of the predictive distributions [S, N].
        fair: correct for the number of draws; needs at least two.

    Returns:
        The score of each point [N], in the units of `y`.

    Raises:
        ValueError: if a shape is wrong, or `fair` has a single draw.

    Source: Ferro 2014, "Fair scores for ensemble forecasts".
    """
    y = _vector("y", y)
    errors = _components("samples", samples, y) - y
    draws = len(errors)
    if fair and draws < 2:
        raise ValueError(
            f"samples: got {draws} draw, wanted at least 2 for the fair score; or use fair=False"
        )
    distance = np.mean(np.abs(errors), axis=0)
    errors.sort(axis=0)
    # sum_{i<j} x_(j) - x_(i) adds the i-th smallest (from 0) i times, and subtracts it S - 1 - i
    rank = 2.0 * np.arange(draws) - (draws - 1)
    pairs = draws * (draws - 1) if fair else draws**2
    return distance - rank @ errors / pairs


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the fraction of the targets inside their intervals, ends included.

    Args:
        y: targets [N].
        lower: lower ends [N].
        upper: upper ends [N], at least `lower`.

    Raises:
        ValueError: if a shape is wrong, or an upper end is below its lower end.
    """
    y = _vector("y", y)
    lower, upper = _interval(lower, upper, y.shape)
    if np.isnan(y).any() or np.isnan(lower).any() or np.isnan(upper).any():
        return float("nan")
    return float(np.mean((lower <= y) & (y <= upper)))


def interval_width(lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the mean width of intervals, in the units of the targets.

    Args:
        lower: lower ends [N].
        upper: upper ends [N], at least `lower`.

    Raises:
        ValueError: if a shape is wrong, or an upper end is below its lower end.
    """
    lower = _vector("lower", lower)
    lower, upper = _interval(lower, upper, lower.shape)
    return float(np.mean(upper - lower))


def accuracy(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the fraction of points whose most probable class is the true one; ties: the first.

    Args:
        y: classes [N], integers 0 ... C-1.
        probabilities: [N, C], also for two classes.

    Raises:
        ValueError: if a shape is wrong, a class is not in 0 ... C-1, or a row does not sum to 1.
    """
    y, probabilities = _classes(y, probabilities)
    return float(np.mean(probabilities.argmax(axis=1) == y))


def log_loss(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the mean of -log p(true class), in nats; infinite if a true class has probability 0.

    Args:
        y: classes [N], integers 0 ... C-1.
        probabilities: [N, C], also for two classes.

    Raises:
        ValueError: if a shape is wrong, a class is not in 0 ... C-1, or a row does not sum to 1.
    """
    y, probabilities = _classes(y, probabilities)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(probabilities[np.arange(len(y)), y])))


def brier(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the Brier score: the mean of sum_c (p_c - [c is the true class])^2, from 0 to 2.

    This is the definition of Brier (1950) for any number of classes. For two classes it is twice
    the squared error of one class's probability.

    Args:
        y: classes [N], integers 0 ... C-1.
        probabilities: [N, C], also for two classes.

    Raises:
        ValueError: if a shape is wrong, a class is not in 0 ... C-1, or a row does not sum to 1.
    """
    y, probabilities = _classes(y, probabilities)
    truth = np.arange(probabilities.shape[1]) == y[:, None]
    return float(np.mean(np.sum((probabilities - truth) ** 2, axis=1)))


def expected_calibration_error(y: ArrayLike, probabilities: ArrayLike, bins: int = 15) -> float:
    """Return the expected calibration error.

    The confidence of a point is the probability of its most probable class. Bin m of M contains the
    points with confidence in ((m - 1)/M, m/M]. The error is the mean of |accuracy - confidence|
    over bins, weighted by their numbers of points. It depends on the number of bins.

    Args:
        y: classes [N], integers 0 ... C-1.
        probabilities: [N, C], also for two classes.
        bins: number of bins M of equal width.

    Raises:
        ValueError: if a shape is wrong, a class is not in 0 ... C-1, a row does not sum
            to 1, or `bins` is not positive.

    Source: Guo, Pleiss, Sun and Weinberger 2017, "On Calibration of Modern Neural Networks".
    """
    y, probabilities = _classes(y, probabilities)
    if bins < 1:
        raise ValueError(f"bins: got {bins}, wanted at least 1")
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == y
    inner = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    gaps = np.bincount(np.searchsorted(inner, confidence), weights=correct - confidence)
    return float(np.sum(np.abs(gaps)) / len(y))


def auc(y: ArrayLike, score: ArrayLike) -> float:
    """Return the area under the receiver operating characteristic of two classes.

    Args:
        y: classes [N], 0 and 1, both present.
        score: classifier score [N], larger for class 1: its probability, say.

    Raises:
        ValueError: if a shape is wrong, the classes are not 0 and 1, or a score is NaN.
    """
    y = _vector("y", y)
    score = _array("score", score, y.shape)
    found = np.unique(y)
    if not np.array_equal(found, (0, 1)):
        raise ValueError(
            f"y: got the classes {found[:5].tolist()}, wanted both 0 and 1 and no others"
        )
    if np.isnan(score).any():
        raise ValueError(f"score: got {int(np.isnan(score).sum())} NaN, wanted numbers")
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, score))


def mean_and_standard_error(values: ArrayLike) -> tuple[float, float]:
    """Return the mean over runs or splits, and its standard error.

    Args:
        values: one value per run, [n].

    Returns:
        The mean, and the standard deviation (with n - 1) divided by sqrt(n); NaN for n = 1.

    Raises:
        ValueError: if the shape is wrong.
    """
    values = _vector("values", values)
    if len(values) == 1:
        return float(values[0]), float("nan")
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _crps(y: np.ndarray, means: np.ndarray, sds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the score of targets [N] under mixtures [S, N]."""
    score = np.einsum("sn,sn->n", weights, _mean_distance(means - y, sds))
    score -= np.einsum("sn,sn->n", weights**2, sds) / np.sqrt(np.pi)  # pairs with i = j
    variances = sds**2
    for i in range(len(means) - 1):  # pairs with i < j, each counted twice
        spread = np.sqrt(variances[i] + variances[i + 1 :])
        distance = _mean_distance(means[i] - means[i + 1 :], spread)
        score -= weights[i] * np.einsum("sn,sn->n", weights[i + 1 :], distance)
    return np.maximum(score, 0.0)  # rounding can make it negative


def _mean_distance(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return E|mean + sd e| for a standard normal e; |mean| if sd is 0."""
    with np.errstate(over="ignore", under="ignore"):
        z = mean / (np.sqrt(2.0) * np.maximum(sd, np.finfo(np.float64).tiny))
        return mean * erf(z) + np.sqrt(2.0 / np.pi) * sd * np.exp(-(z**2))


def _array(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name}: got shape {array.shape}, wanted {shape}")
    return array


def _vector(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name}: got shape {array.shape}, wanted [N] with N at least 1")
    return array


def _components(name: str, value: ArrayLike, y: np.ndarray) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != 2 or len(array) == 0 or array.shape[1] != len(y):
        raise ValueError(
            f"{name}: got shape {array.shape}, wanted [S, N] with S at least 1 and N = {len(y)}"
        )
    return array


def _weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return weights [S, N], normalised."""
    if weights is None:
        return np.full(shape, 1.0 / shape[0])
    array = np.asarray(weights, dtype=np.float64)
    if array.shape not in (shape, shape[:1]):
        raise ValueError(f"weights: got shape {array.shape}, wanted {shape[:1]} or {shape}")
    if (array < 0).any():
        raise ValueError(f"weights: got {array.min()}, wanted at least 0")
    total = array.sum(axis=0)
    off = float(np.max(np.abs(total - 1.0)))
    if not off <= _SUM_TOLERANCE:
        raise ValueError(f"weights: got sums that differ from 1 by {off:.3g}, wanted sums of 1")
    array = array / total
    return np.broadcast_to(array if array.ndim == 2 else array[:, None], shape)


def _interval(
    lower: ArrayLike, upper: ArrayLike, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    lower = _array("lower", lower, shape)
    upper = _array("upper", upper, shape)
    crossed = int((upper < lower).sum())
    if crossed:
        raise ValueError(f"upper: got {crossed} ends below the lower ends, wanted none")
    return lower, upper


def _classes(y: ArrayLike, probabilities: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Check and return classes, int64 [N], and probabilities [N, C]."""
    labels = _vector("y", y)
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim != 2 or len(array) != len(labels) or array.shape[1] < 2:
        raise ValueError(
            f"probabilities: got shape {array.shape}, wanted [N, C] with N = {len(labels)} and C "
            "at least 2 (for two classes stack 1 - p and p)"
        )
    wrong = ~np.isin(labels, np.arange(array.shape[1]))
    if wrong.any():
        raise ValueError(
            f"y: got the class {labels[wrong][0]:g}, wanted integers from 0 to {array.shape[1] - 1}"
        )
    with np.errstate(invalid="ignore"):  # inf - inf
        total = array.sum(axis=1, keepdims=True)
    bad = ~((array >= 0) & (np.abs(total - 1.0) <= _SUM_TOLERANCE)).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"probabilities: got {array[row, :5].tolist()} in row {row}, wanted numbers from 0 to "
            "1 with sum 1"
        )
    return labels.astype(np.int64), array
