"""Predictions against observed targets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from dgp_ppl._checks import check_positive
from dgp_ppl.criticism import loo
from dgp_ppl.plots._figure import array, finish, not_empty, panels, percent, style


def predicted_against_observed(
    y: ArrayLike,
    predictions: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    target: str = "y",
    title: str = "",
    level: float = 0.9,
) -> Any:
    """Plot predicted means and central intervals against observed targets: one panel per method.

    Args:
        y: observed targets, [N].
        predictions: by method: mean, lower end and upper end of the interval, [N] each.
        target: name of the target, with its unit.
        title: title of the figure.
        level: the interval's probability.

    Raises:
        ValueError: if there is no method, or an array is not [N].
    """
    caller = "predicted_against_observed"
    check_positive(caller, "level", level, most=1.0)
    y = array(caller, "y", y, [None])
    not_empty(caller, "predictions", predictions)
    figure, axes = panels(len(predictions), 4, 4.4, f"predicted {target}")
    bands = {
        name: [array(caller, f"predictions[{name!r}]", a, y.shape) for a in band]
        for name, band in predictions.items()
    }
    ends = [y, *(a for band in bands.values() for a in band)]
    low, high = min(a.min() for a in ends), max(a.max() for a in ends)
    for i, (name, (mean, lower, upper)) in enumerate(bands.items()):
        axis, color = axes[i], style(i)["color"]
        inside = (lower <= y) & (y <= upper)
        axis.plot([low, high], [low, high], color="0.4", linewidth=0.8, zorder=1)
        axis.vlines(
            y, lower, upper, color=color, alpha=0.25, linewidth=1, zorder=2,
            label=f"{percent(level)} interval",
        )  # fmt: skip
        axis.plot(y[inside], mean[inside], ".", color=color, markersize=4, zorder=3, label="inside")
        axis.plot(
            y[~inside], mean[~inside], "x", color="black", markersize=4, zorder=4, label="outside"
        )
        axis.set_title(f"{name}: {percent(inside.mean())} inside", fontsize=10)
        axis.set_xlabel(f"observed {target}")
        axis.set_aspect("equal", adjustable="datalim")
        axis.locator_params(nbins=5)  # labels of six digits have room
    return finish(figure, title, axes[:1])


def validation(
    tree: Any, var_name: str | None = None, target: str = "y", title: str = "", level: float = 0.9
) -> Any:
    """Plot each observed target against its prediction given all others, with an interval.

    Nothing is fitted again: the posterior's draws are weighted, as `criticism.loo` does. Targets
    that were held out are for `predicted_against_observed`::

        tree = dgp.to_inferencedata(key, model, guide, fit.params, x, y)
        plots.validation(tree).savefig("validation.png")

    Args:
        tree: an ArviZ tree of a model with one target a row.
        var_name: the observed site; None if there is only one.
        target: name of the target, with its unit.
        title: title of the figure.
        level: the interval's probability.

    Raises:
        TypeError: if `tree` is no tree of ArviZ.
        ValueError: if it lacks a group, has fewer than 25 draws, or several targets a row.

    Warns:
        UserWarning: as `criticism.loo`, of rows whose weights cannot be trusted.
    """
    import arviz_stats

    check_positive("validation", "level", level, most=1.0)
    found: Any = loo(tree, var_name)
    if lacking := {"posterior_predictive", "observed_data"} - set(tree.children):
        raise ValueError(
            f"validation: the tree has groups {list(tree.children)}, wanted {sorted(lacking)} too, "
            "as of to_inferencedata"
        )
    name = var_name or next(iter(tree["log_likelihood"].data_vars))
    y = array("validation", "the target", tree["observed_data"][name].values, [None])
    given = {"log_weights": found.log_weights, "pareto_k": found.pareto_k, "var_name": name}
    statistics: Any = arviz_stats  # typed lazily
    tails = [(1 - level) / 2, (1 + level) / 2]
    with warnings.catch_warnings(action="ignore"):  # of the same rows as `loo`
        mean, _ = statistics.loo_expectations(tree, kind="mean", **given)
        ends, _ = statistics.loo_expectations(tree, kind="quantile", probs=tails, **given)
    bands = {"each given all others": (mean, ends[0], ends[1])}
    return predicted_against_observed(y, bands, target, title, level)
