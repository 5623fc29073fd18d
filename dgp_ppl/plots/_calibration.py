"""Predictions against what was observed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dgp_ppl.plots._figure import array, figure_of, finish, methods, panels, percent, style

__all__ = ["coverage_curves", "pit_histograms", "predicted_against_observed", "reliability"]

_BAND = 0.95  # of a calibrated method's values


def predicted_against_observed(
    y: ArrayLike,
    predictions: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    target: str = "y",
    title: str = "",
    level: float = 0.9,
) -> Any:
    """Predicted mean and central interval against the observed target, a panel for each method.

    Args:
        y: observed, [N].
        predictions: by method: mean, lower end and upper end of the interval, [N] each.
        target: name of the target, with its unit if it has one.
        title: of the figure.
        level: the interval's probability.

    Raises:
        ValueError: if there is no method, or an array is not [N].
    """
    caller = "predicted_against_observed"
    y = array(caller, "y", y, [None])
    entries = methods(caller, "predictions", predictions)
    figure, axes = panels(len(entries), 4, 4.4, f"predicted {target}")
    bands = {
        name: [array(caller, f"predictions[{name!r}]", a, y.shape) for a in band]
        for _, name, band in entries
    }
    ends = [y, *(a for band in bands.values() for a in band)]
    low, high = min(a.min() for a in ends), max(a.max() for a in ends)
    for i, name, _ in entries:
        axis, color, (mean, lower, upper) = axes[i], style(i)["color"], bands[name]
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
    return finish(figure, title, axes[:1])


def coverage_curves(
    y: ArrayLike,
    levels: ArrayLike,
    intervals: Mapping[str, ArrayLike | tuple[ArrayLike, ArrayLike]],
    title: str = "",
) -> Any:
    """How many of the targets are in their central intervals, against what was promised.

    Above the diagonal intervals are too wide, below it too narrow. The grey band has 95 % of a
    calibrated method's values at each level, from the binomial distribution of N targets.

    Args:
        y: observed, [N].
        levels: probabilities of the intervals, [K], between 0 and 1.
        intervals: by method: lower and upper ends, [2, K, N]; of a `Prediction` p,
            ``p.quantile(0.5 - levels / 2), p.quantile(0.5 + levels / 2)``.
        title: of the figure.

    Raises:
        ValueError: if there is no method, a shape does not fit, or a level is not between 0 and 1.
    """
    caller = "coverage_curves"
    y, levels = array(caller, "y", y, [None]), array(caller, "levels", levels, [None])
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"{caller}: levels are {levels}, wanted numbers between 0 and 1")
    figure, axes = figure_of(5.2, 5)
    axis, fine = axes[0, 0], np.linspace(0, 1, 201)
    lower, upper = (stats.binom.ppf(p, len(y), fine) / len(y) for p in _tails())
    axis.fill_between(
        fine, lower, upper, color="0.88", linewidth=0, label=f"{percent(_BAND)} if calibrated"
    )
    axis.plot([0, 1], [0, 1], color="0.4", linewidth=0.8)
    for i, name, ends in methods(caller, "intervals", intervals):
        low, high = array(caller, f"intervals[{name!r}]", ends, [2, len(levels), len(y)])
        inside = ((low <= y) & (y <= high)).mean(axis=1)
        axis.plot(levels, inside, label=name, markersize=4, linewidth=1.3, **style(i))
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.set_xlabel("probability of the central interval")
    axis.set_ylabel(f"share of {len(y)} targets inside")
    return finish(figure, title, axes, columns=2)


def pit_histograms(pit: Mapping[str, ArrayLike], title: str = "", bins: int = 10) -> Any:
    """Histograms of P(Y <= y) at the observed y, uniform if predictions are calibrated.

    A heap in the middle says that predictive distributions are too wide, one at both ends that they
    are too narrow, a slope that they are biased. The grey band has 95 % of a calibrated method's
    shares in each bin.

    Args:
        pit: by method: probability integral transforms, [N], between 0 and 1.
        title: of the figure.
        bins: of equal width.

    Raises:
        ValueError: if there is no method, or a value is not between 0 and 1.
    """
    caller = "pit_histograms"
    entries = methods(caller, "pit", pit)
    figure, axes = panels(len(entries), 3, 3.2, "share of targets", sharey=True)
    highest = 0.0
    for i, name, values in entries:
        axis, values = axes[i], array(caller, f"pit[{name!r}]", values, [None])
        if not len(values) or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{caller}: pit[{name!r}] wanted values between 0 and 1")
        share = np.histogram(values, bins, (0, 1))[0] / len(values)
        lower, upper = (stats.binom.ppf(p, len(values), 1 / bins) / len(values) for p in _tails())
        edges = np.linspace(0, 1, bins + 1)
        color = style(i)["color"]
        label = f"{percent(_BAND)} if uniform"
        axis.axhspan(lower, upper, color="0.88", linewidth=0, zorder=0, label=label)
        axis.bar(
            edges[:-1], share, 1 / bins, align="edge", color=color, edgecolor="white", alpha=0.8
        )
        axis.hlines([lower, upper], 0, 1, color="0.3", linestyle=":", linewidth=1)
        axis.axhline(1 / bins, color="0.2", linewidth=0.8)
        highest = max(highest, upper, share.max())
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("P(Y ≤ observed y)")
        axis.set(xlim=(0, 1), ylim=(0, 1.1 * highest))
    return finish(figure, title, axes[:1])


def reliability(
    y: ArrayLike, probabilities: Mapping[str, ArrayLike], title: str = "", bins: int = 10
) -> Any:
    """How often the most probable class is right against its probability, a panel for each method.

    A point for each of the bins of equal width that is not empty, at its mean confidence, with two
    binomial standard errors; its area is in proportion to the rows in it.

    Args:
        y: observed classes 0 ... C-1, [N].
        probabilities: by method: of each class, [N, C].
        title: of the figure.
        bins: number of bins.

    Raises:
        ValueError: if there is no method, or probabilities are not [N, C].
    """
    y = np.asarray(y)
    entries = methods("reliability", "probabilities", probabilities)
    figure, axes = panels(len(entries), 3.6, 3.9, "share that is right")
    for i, name, values in entries:
        axis, color = axes[i], style(i)["color"]
        found = array("reliability", f"probabilities[{name!r}]", values, [len(y), None])
        confidence, right = found.max(axis=1), found.argmax(axis=1) == y
        bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
        count = np.bincount(bin_of, minlength=bins)
        kept = count > 0
        middle, share = (
            np.bincount(bin_of, weights=a, minlength=bins)[kept] / count[kept]
            for a in (confidence, right)
        )
        # Of the Beta posterior, as a share of 0 or 1 has no error of its own.
        wilson = (share * count[kept] + 1) / (count[kept] + 2)
        error = 2 * np.sqrt(wilson * (1 - wilson) / (count[kept] + 3))
        lower, upper = np.minimum(error, share), np.minimum(error, 1 - share)
        axis.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, zorder=1, label="calibrated")
        axis.errorbar(
            middle, share, (lower, upper), fmt="none", color=color, alpha=0.6, zorder=2,
            label="two standard errors",
        )  # fmt: skip
        axis.scatter(
            middle, share, 15 + 250 * count[kept] / len(y), color=color, zorder=3,
            label="bin, area by its rows",
        )  # fmt: skip
        axis.set_title(f"{name}: {percent(right.mean())} right", fontsize=10)
        axis.set_xlabel("probability of the predicted class")
        axis.set_xlim(1 / found.shape[1] - 0.05, 1.05)
        axis.set_ylim(-0.05, 1.05)
    return finish(figure, title, axes[:1])


def _tails() -> tuple[float, float]:
    return 0.5 - _BAND / 2, 0.5 + _BAND / 2
