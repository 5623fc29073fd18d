"""Calibration of predictive draws on ArviZ trees: PIT, coverage and posterior predictive checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dgp_ppl.criticism._groups import (
    arviz_stats,
    in_float64,
    log_likelihood_name,
    observed_and_draws,
    warn_about_rows,
)

__all__ = ["Calibration", "calibration", "loo_pit", "pit", "posterior_check"]


def pit(
    tree: Any, var_name: str | None = None, *, group: str = "posterior_predictive", seed: int = 0
) -> np.ndarray:
    """Return probability integral transforms P(Y_n < y_n), [N, ...].

    They are uniform if the predictive draws are calibrated. Ties, as for counts and classes, are
    broken at random. With S draws, each value is uniform within its step of 1 / (S + 1).

    Args:
        tree: an ArviZ tree.
        var_name: the observed site; None if there is only one.
        group: ``posterior_predictive``, ``prior_predictive``, or ``predictions`` for held-out rows.
        seed: seed of the random part.

    Raises:
        ValueError: if the tree lacks these draws, or y for them.

    Source: Czado, Gneiting and Held 2009, "Predictive Model Assessment for Count Data".
    """
    y, draws = observed_and_draws(tree, var_name, group, "pit")
    below, equal = (draws < y).sum(axis=0), (draws == y).sum(axis=0)
    fraction = np.random.default_rng(seed).uniform(size=y.shape)
    return (below + fraction * (equal + 1)) / (len(draws) + 1)


def loo_pit(tree: Any, var_name: str | None = None, *, seed: int = 0) -> np.ndarray:
    """Return P(Y_n < y_n) under the predictive distribution given all other rows, [N], by ArviZ.

    Args:
        tree: an ArviZ tree with ``log_likelihood`` and ``posterior_predictive``.
        var_name: the observed site; None if there is only one.
        seed: seed of the random part, for discrete y.

    Raises:
        ValueError: if the tree lacks a group, or a row has several values.

    Warns:
        UserWarning: as `loo`.
    """
    name = log_likelihood_name(tree, var_name, "loo_pit")
    y, _ = observed_and_draws(tree, name, "posterior_predictive", "loo_pit")
    if y.shape != tree["log_likelihood"][name].shape[2:]:
        raise ValueError(
            f"loo_pit: each row of {name!r} has several values, of shape {y.shape[1:]}, wanted "
            "one; use pit"
        )
    warn_about_rows(tree, name)
    found = arviz_stats().loo_pit(in_float64(tree, name), var_names=name, random_state=seed)
    return np.clip(found[name].values, 0.0, 1.0)  # rounding can make sums of weights exceed 1


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Coverage of central intervals.

    Attributes:
        levels: probabilities of the intervals, [L].
        coverage: fraction of the rows inside each interval, [L].
        lower: lower ends of the 95 % band of a calibrated model's coverage, [L].
        upper: upper ends of this band, [L].
        p_value: Kolmogorov-Smirnov p-value for a uniform PIT. It assumes independent rows, but
            training rows are slightly dependent.
        num: number of rows.
    """

    levels: np.ndarray
    coverage: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    p_value: float
    num: int


def calibration(values: ArrayLike, levels: ArrayLike | None = None) -> Calibration:
    """Compute the coverage of central intervals from probability integral transforms.

    ``calibration(pit(tree)).coverage`` is close to ``levels`` for calibrated predictions.

    Args:
        values: result of `pit` or `loo_pit`, any shape, in [0, 1]; NaN are left out.
        levels: levels in (0, 1), [L]; by default 0.05, 0.1, ..., 0.95.

    Raises:
        ValueError: if a value is outside [0, 1], or there are no values.
    """
    u = np.asarray(values, np.float64).ravel()
    u = u[~np.isnan(u)]
    if not u.size or u.min() < 0 or u.max() > 1:
        found = f"from {u.min()} to {u.max()}" if u.size else "empty"
        raise ValueError(f"calibration: values are {found}, wanted some in [0, 1]; pass pit(tree)")
    p = np.linspace(0.05, 0.95, 19) if levels is None else np.asarray(levels, np.float64)
    if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
        raise ValueError(f"calibration: levels are {levels}, wanted [L] in (0, 1)")
    inside = (np.abs(2 * u - 1)[:, None] <= p).mean(axis=0)
    lower, upper = (stats.binom.ppf(q, u.size, p) / u.size for q in (0.025, 0.975))
    p_value = float(stats.kstest(u, "uniform").pvalue)
    return Calibration(p, inside, lower, upper, p_value, u.size)


DEFAULT_STATISTICS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "sd": np.std,
    "min": np.min,
    "max": np.max,
}
"""Default statistics of `posterior_check`."""


def posterior_check(
    tree: Any,
    statistics: Mapping[str, Callable[[np.ndarray], Any]] | None = None,
    var_name: str | None = None,
    *,
    group: str = "posterior_predictive",
) -> Any:
    """Compare statistics of y with those of replicated data sets: a posterior predictive check.

    A p-value near 0 or 1 marks a feature of the data that the model does not reproduce.

    Args:
        tree: an ArviZ tree.
        statistics: functions from a data set, [N, ...], to a number, by name; by default mean, sd,
            min and max.
        var_name: the observed site; None if there is only one.
        group: see `pit`.

    Returns:
        A table with one row per statistic: ``observed``, ``predicted`` (the mean over data sets),
        the ends ``lower`` and ``upper`` of a 90 % interval, and ``p_value``, P(T(y_rep) >= T(y)).

    Raises:
        ValueError: if the tree lacks these draws, or y for them.

    Source: Gelman, Meng and Stern 1996, "Posterior Predictive Assessment of Model Fitness via
    Realized Discrepancies".
    """
    import pandas

    y, draws = observed_and_draws(tree, var_name, group, "posterior_check")
    rows = {}
    for name, function in (DEFAULT_STATISTICS if statistics is None else statistics).items():
        kept = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(y.shape, bool)
        replicated = np.array([float(function(draw[kept])) for draw in draws])
        observed = float(function(y[kept]))
        lower, upper = np.quantile(replicated, [0.05, 0.95])
        ties = 0.5 * np.mean(replicated == observed)
        p_value = float(np.mean(replicated > observed) + ties)
        rows[name] = {
            "observed": observed, "predicted": replicated.mean(), "lower": lower, "upper": upper,
            "p_value": p_value,
        }  # fmt: skip
    return pandas.DataFrame.from_dict(rows, orient="index")
