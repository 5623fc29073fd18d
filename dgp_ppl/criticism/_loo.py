"""Expected log predictive density: LOO, WAIC, stacking and importance weights, on ArviZ trees.

The trees are those of `to_inferencedata`, but only ArviZ's standard groups are needed. ArviZ
computes; these functions add the checks that deep GPs need.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np
from scipy.special import logsumexp

from dgp_ppl.criticism._groups import (
    arviz_stats,
    in_float64,
    log_likelihood_name,
    warn_about_passes,
    warn_about_rows,
)

__all__ = ["WAIC", "loo", "stacking", "waic", "weights_khat"]

_MIN_DRAWS = 25  # so that the tail, a fifth of them, has the 5 that a Pareto fit needs
_MAX_VARIANCE = 0.4  # of a row's log-likelihood, above which WAIC fails (Vehtari et al. 2017)


def loo(tree: Any, var_name: str | None = None, *, correct: bool = False) -> Any:
    """Estimate leave-one-out cross-validation by Pareto-smoothed importance sampling.

    This is ArviZ's ``loo``, with checks that leaving out y_n leaves out the whole row::

        found = criticism.loo(tree)
        found.elpd, found.se, found.pareto_k

    Args:
        tree: an ArviZ tree with ``log_likelihood`` and ``posterior``.
        var_name: the observed site; None if there is only one.
        correct: weigh a guide's draws by p(y, v) / q(v) too (Magnusson et al. 2019). The result is
            then LOO under the exact posterior, if the Pareto k are small enough to trust the
            weights. False treats the draws as the posterior's.

    Returns:
        ArviZ's ``ELPDData``: ``elpd`` in nats, ``se``, ``p``, and for each row ``elpd_i`` and
        ``pareto_k``.

    Raises:
        ValueError: if the tree has no log-likelihood or fewer than 25 draws, or `correct` finds no
            densities.

    Warns:
        UserWarning: if the log-likelihood is conditional on a row's latent inputs, if few passes
            over hidden noise give a bias of more than a tenth of ``se`` (with `correct` they give
            none), and from ArviZ if a Pareto k is large.

    Source: Vehtari, Gelman and Gabry 2017, "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC".
    """
    name = log_likelihood_name(tree, var_name, "loo")
    warn_about_rows(tree, name)
    values = tree["log_likelihood"][name].values
    num, rows = values.shape[:2], values.size // math.prod(values.shape[:2])
    if not rows or math.prod(num) < 2 or not np.ptp(values, axis=(0, 1)).any():
        raise ValueError(
            f"loo: the log-likelihood has {rows} rows and {math.prod(num)} draws that do not "
            "differ, wanted rows and draws of a posterior that is not a point mass"
        )
    if math.prod(num) < _MIN_DRAWS:
        raise ValueError(
            f"loo: the log-likelihood has {math.prod(num)} draws, wanted at least {_MIN_DRAWS} to "
            "smooth the largest weights; pass a larger num_samples to to_inferencedata"
        )
    if rows == 1:
        warnings.warn(
            f"LOO treats the data as one observation: {name!r} has them all in one event; put its "
            "rows in a plate",
            UserWarning,
            stacklevel=2,
        )
    tree = in_float64(tree, name)
    if not correct:
        result = arviz_stats().loo(tree, var_name=name, pointwise=True)
        # p is log p(y | y) - elpd. The correction is of elpd alone, but shifts both.
        result.p -= float(_correction(tree, name).sum())
        warn_about_passes(tree, name, float(result.se))
        return result
    found = tree.children.get("sample_stats")
    if found is None or "log_q" not in found.data_vars:
        raise ValueError(
            "loo: correct=True needs sample_stats with lp and log_q, which a guide's draws have "
            "where q has a density; pass correct=False"
        )
    log_p, log_q = (found[n].values.ravel() for n in ("lp", "log_q"))
    # The weight p(y, v) / q(v) contains the same estimate of p(y_n | v) that leaving out y_n
    # divides by. It cancels, so few passes give no bias, and the correction is taken back.
    import xarray

    raw = tree["log_likelihood"].to_dataset()
    raw[name] = raw[name] - _correction(tree, name)
    tree = tree.copy()
    tree["log_likelihood"] = xarray.DataTree(raw)
    return arviz_stats().loo_approximate_posterior(
        tree, log_p=log_p, log_q=log_q, var_name=name, pointwise=True
    )


def _correction(tree: Any, name: str) -> np.ndarray:
    """Return what a site's log-likelihood contains to correct the bias of few passes."""
    found = tree.children.get("constant_data")
    variable = f"{name}_loo_correction"
    return found[variable].values if found is not None and variable in found else np.zeros(())


def weights_khat(tree: Any) -> float | None:
    """Return the Pareto k-hat of a guide's importance weights, or None if the tree has none.

    Below 0.7, q is close enough to the posterior for weighted draws to correct it. Unlike
    `check_guide`, it uses the draws in the tree, and weights with the hidden layers' noise
    integrated out.

    Args:
        tree: an ArviZ tree; ``log_weight`` is in ``sample_stats``.

    Source: Yao et al. 2018, "Yes, but Did It Work?: Evaluating Variational Inference".
    """
    found = tree.children.get("sample_stats")
    if found is None or "log_weight" not in found.data_vars:
        return None
    arviz_stats()  # registers the accessor
    # ArviZ expects log-likelihoods, the negatives of log ratios.
    weights = -found["log_weight"].astype(np.float64)
    return float(weights.azstats.psislw(dim=["chain", "draw"])[1])


@dataclasses.dataclass(frozen=True)
class WAIC:
    """The widely applicable information criterion, on the log scale.

    Attributes:
        elpd: expected log pointwise predictive density in nats; higher is better.
        se: its standard error over rows.
        p: effective number of parameters.
        elpd_i: each row's elpd.
        p_i: each row's variance of the log-likelihood over draws.
        warning: whether a variance is above 0.4. LOO is then more reliable.
    """

    elpd: float
    se: float
    p: float
    elpd_i: np.ndarray
    p_i: np.ndarray
    warning: bool


def waic(tree: Any, var_name: str | None = None) -> WAIC:
    """Compute WAIC: the log mean of p(y_n | draw), minus the variance of log p(y_n | draw).

    Args:
        tree: an ArviZ tree with ``log_likelihood``.
        var_name: the observed site; None if there is only one.

    Raises:
        ValueError: if the tree has no log-likelihood.

    Warns:
        UserWarning: as `loo`, and if a row's variance is above 0.4.

    Source: Watanabe 2010, "Asymptotic Equivalence of Bayes Cross Validation and Widely Applicable
    Information Criterion in Singular Learning Theory".
    """
    name = log_likelihood_name(tree, var_name, "waic")
    warn_about_rows(tree, name)
    terms = tree["log_likelihood"][name].values.astype(np.float64)
    flat = terms.reshape(math.prod(terms.shape[:2]), -1)
    p_i = flat.var(axis=0, ddof=1)
    log_sums: Any = logsumexp(flat, axis=0)
    elpd_i = log_sums - math.log(len(flat)) - p_i
    num_large = int((p_i > _MAX_VARIANCE).sum())
    if num_large:
        warnings.warn(
            f"waic: the log-likelihood of {num_large} of {p_i.size} rows has a variance above "
            f"{_MAX_VARIANCE}, where WAIC cannot be trusted; use loo",
            UserWarning,
            stacklevel=2,
        )
    shape = terms.shape[2:]
    se = math.sqrt(elpd_i.size * elpd_i.var())
    warn_about_passes(tree, name, se)
    return WAIC(
        float(elpd_i.sum()), se, float(p_i.sum()), elpd_i.reshape(shape), p_i.reshape(shape),
        num_large > 0,
    )  # fmt: skip


def stacking(
    trees: Mapping[str, Any], var_name: str | None = None, *, method: str = "stacking"
) -> Any:
    """Compare guides, samplers and models by LOO, and find the weights of their best mixture.

    Args:
        trees: ArviZ trees by name, with the same rows of data.
        var_name: the observed site; None if there is only one.
        method: ``"stacking"`` (Yao et al. 2018), ``"BB-pseudo-BMA"`` or ``"pseudo-BMA"``.

    Returns:
        ArviZ's table, best first: ``elpd``, ``elpd_diff`` and its standard error, ``weight``.

    Raises:
        ValueError: if there are fewer than two trees, or their rows differ.
    """
    if len(trees) < 2:
        raise ValueError(f"stacking: got {len(trees)} tree, wanted two or more to compare")
    names = {n: log_likelihood_name(t, var_name, "stacking") for n, t in trees.items()}
    targets = {n: t["observed_data"][names[n]].values for n, t in trees.items()}
    first, y = next(iter(targets.items()))
    for other, y_other in targets.items():
        if y_other.shape != y.shape or not _close(y_other, y):
            raise ValueError(
                f"stacking: {first!r} and {other!r} have different data, with targets of shapes "
                f"{y.shape} and {y_other.shape}, wanted the same rows in the same order"
            )
    found = {n: loo(t, names[n]) for n, t in trees.items()}
    compare = arviz_stats().compare
    # From 1.2 on ArviZ rounds the table by default.
    options = {"round_to": "none"} if "round_to" in signature(compare).parameters else {}
    with warnings.catch_warnings():  # pandas deprecates what ArviZ uses
        warnings.simplefilter("ignore", DeprecationWarning)
        return compare(found, method=method, **options)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two targets agree up to float32's rounding."""
    room = 1e-5 * np.nanmax(np.abs(b)) + 1e-4 * np.nanstd(b)
    return bool((np.isnan(a) == np.isnan(b)).all() and (np.nan_to_num(np.abs(a - b)) <= room).all())
