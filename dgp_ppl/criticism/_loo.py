"""Leave-one-out cross-validation and importance weights, on ArviZ trees.

The trees come from `to_inferencedata`, but only ArviZ's standard groups are needed. ArviZ computes;
these functions add the checks that deep GPs need.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from dgp_ppl._checks import check_kind
from dgp_ppl.inferencedata._loo_bias import stored_correction, warn_about_bias

_EQUAL = 1e-3  # nats within which log-likelihoods give equal weights
_MIN_DRAWS = 25  # so that the tail, a fifth of them, has the 5 that a Pareto fit needs


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
        ``pareto_k``. Of rows most of whose draws tie, the weights are not smoothed, and k is 0 if
        they are equal, else infinite.

    Raises:
        TypeError: if `tree` is no tree of ArviZ.
        ValueError: if the tree has no log-likelihood or fewer than 25 draws, or `correct` finds no
            densities.

    Warns:
        UserWarning: if the log-likelihood is conditional on a row's latent inputs, if rows are
            weighted by ``handlers.scale``, if few passes over hidden noise give a bias of more than
            a tenth of ``se`` (with `correct` they give none), and from ArviZ if a Pareto k is
            large.

    Source: Vehtari, Gelman and Gabry 2017, "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC".
    """
    import arviz_stats
    import xarray

    name = _log_likelihood_name(tree, var_name)
    group = tree["log_likelihood"].to_dataset()
    num, rows = math.prod(group[name].shape[:2]), math.prod(group[name].shape[2:])
    if not rows or num < 2 or not np.ptp(group[name].values, axis=(0, 1)).any():
        raise ValueError(
            f"loo: the log-likelihood has {rows} rows and {num} draws that do not "
            "differ, wanted rows and draws of a posterior that is not a point mass"
        )
    if num < _MIN_DRAWS:
        raise ValueError(
            f"loo: the log-likelihood has {num} draws, wanted at least {_MIN_DRAWS} to "
            "smooth the largest weights; pass a larger num_samples to to_inferencedata"
        )
    if group.attrs.get("latent_rows") == "given":
        _warn(
            "the log-likelihood is conditional on each row's own latent inputs, so LOO does not "
            "leave out whole rows; convert with latent_rows='integrated'"
        )
    if group.attrs.get("weighted_rows") == "True":
        _warn(
            "rows are weighted, by handlers.scale, and their log-likelihoods are not, so LOO does "
            "not leave out the whole of a row; compare fits without weights"
        )
    if rows == 1:
        _warn(
            f"LOO treats the data as one observation: {name!r} has them all in one event; put its "
            "rows in a plate"
        )
    correction = stored_correction(tree, name)
    # In float32 the smallest weights underflow where a row spreads over more than 100 nats.
    group[name] = group[name].astype(np.float64)
    if correct:
        # The weight p(y, v) / q(v) contains the same estimate of p(y_n | v) that leaving out y_n
        # divides by. It cancels, so few passes give no bias, and the correction is taken back.
        group[name] = group[name] - correction
    raw, tree = tree, tree.copy()
    tree["log_likelihood"] = xarray.DataTree(group)
    statistics: Any = arviz_stats  # typed lazily
    if not correct:
        given: dict[str, Any] = {"var_name": name, "pointwise": True}
        log_p, draws = group[name], ("chain", "draw")
        steps: Any = np.diff(np.sort(log_p.values.reshape(num, -1), axis=0), axis=0)
        tied = log_p[0, 0].copy(data=((steps > 0).sum(axis=0) < num / 4).reshape(log_p.shape[2:]))
        # A fifth of the weights 1 / p is their tail. No Pareto distribution fits it where most
        # draws tie, as where log p rounds to 0.
        if tied.any():
            ramp = np.linspace(0.0, 1.0, num).reshape(log_p.shape[:2])
            group[name] = log_p.where(~tied, xarray.DataArray(ramp, dims=draws))
            others = tree.copy()
            others["log_likelihood"] = xarray.DataTree(group)
            with warnings.catch_warnings(action="ignore"):
                fit = statistics.loo(others, **given)
            low, high = log_p.min(draws), log_p.max(draws)
            plain = low - log_p - np.log(np.exp(low - log_p).sum(draws))
            given["log_weights"] = fit.log_weights.where(~tied, plain)
            given["pareto_k"] = fit.pareto_k.where(
                ~tied, xarray.where(high - low < _EQUAL, 0, np.inf)
            )
        result = statistics.loo(tree, **given)
        # p is log p(y | y) - elpd. The correction is of elpd alone, but shifts both.
        result.p -= float(correction.sum())
        warn_about_bias(raw, name, float(result.se))
        return result
    found = tree.children.get("sample_stats")
    if found is None or "log_q" not in found.data_vars:
        raise ValueError(
            "loo: correct=True needs sample_stats with lp and log_q, which a guide's draws have "
            "where q has a density and rows are independent given a draw; pass correct=False"
        )
    log_p, log_q = (found[n].values.ravel() for n in ("lp", "log_q"))
    result = statistics.loo_approximate_posterior(
        tree, log_p=log_p, log_q=log_q, var_name=name, pointwise=True
    )
    # ArviZ's p takes log p(y_n | y) under q, where elpd is under the posterior.
    ratios: Any = (found["log_q"] - found["lp"]).astype(np.float64)
    log_weights = ratios.azstats.psislw(dim=["chain", "draw"])[0]
    joint = group[name] + log_weights
    top = joint.max(["chain", "draw"])
    seen = top + np.log(np.exp(joint - top).sum(["chain", "draw"]))
    result.p = float(seen.sum()) - float(result.elpd)
    return result


def _check_tree(caller: str, tree: Any) -> None:
    import xarray

    check_kind(caller, "tree", tree, xarray.DataTree, "an ArviZ tree, as of to_inferencedata")


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)


def _log_likelihood_name(tree: Any, name: str | None) -> str:
    """Return the variable of the group ``log_likelihood``; `name` is optional if there is one."""
    _check_tree("loo", tree)
    if "log_likelihood" not in tree.children:
        raise ValueError(
            f"loo: the tree has groups {list(tree.children)}, wanted log_likelihood; convert "
            "by to_inferencedata with a guide or posterior_samples"
        )
    check_kind("loo", "var_name", name, str | None, "the name of an observed site")
    names = list(tree["log_likelihood"].data_vars)
    if name is None and len(names) == 1:
        return str(names[0])
    if name not in names:
        raise ValueError(f"loo: var_name is {name!r}, wanted one of {names}")
    return str(name)


def weights_khat(tree: Any) -> float | None:
    """Return the Pareto k-hat of a guide's importance weights; None if the tree has under 25.

    Below 0.7, q is close enough to the posterior for weighted draws to correct it. Unlike
    `check_guide`, it uses the draws in the tree, and weights with the hidden layers' noise
    integrated out.

    Args:
        tree: an ArviZ tree; ``log_weight`` is in ``sample_stats``.

    Raises:
        TypeError: if `tree` is no tree of ArviZ.

    Source: Yao et al. 2018, "Yes, but Did It Work?: Evaluating Variational Inference".
    """
    import arviz_stats  # noqa: F401 - registers the accessor

    _check_tree("weights_khat", tree)
    found = tree.children.get("sample_stats")
    if found is None or "log_weight" not in found.data_vars:
        return None
    if found["log_weight"].size < _MIN_DRAWS:
        return None
    # ArviZ expects log-likelihoods, the negatives of log ratios.
    weights: Any = -found["log_weight"].astype(np.float64)
    return float(weights.azstats.psislw(dim=["chain", "draw"])[1])
