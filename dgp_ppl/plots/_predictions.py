"""Predictions against observed targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from dgp_ppl._checks import check_positive
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
