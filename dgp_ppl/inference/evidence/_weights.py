"""Statistics of log weights: their log mean, its standard error, and the effective number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import logsumexp

__all__ = ["log_mean"]


def log_mean(w: np.ndarray) -> tuple[float, float, float]:
    """Return the log of the mean weight, its standard error, and the effective number of weights.

    The error is a jackknife estimate. The weights' sample variance would give a far smaller one if
    a few weights dominate the sum; leaving out the largest reveals them.

    Args:
        w: log weights, [S].
    """
    log_sum: Any = logsumexp(w)
    num, total = len(w), float(log_sum)
    effective = float(1 / np.sum(np.exp(w - total) ** 2))
    others = np.where(np.eye(num, dtype=bool), -np.inf, w)
    without = np.asarray(logsumexp(others, axis=1), np.float64)
    error = math.sqrt((num - 1) * without.var())
    return total - math.log(num), error, effective
