"""Predictions against observed targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dgp_ppl.plots._figure import array, figure_of, finish, methods, panels, percent, style

__all__ = ["coverage_curves", "pit_histograms", "predicted_against_observed", "reliability"]

_BAND = 0.95  # probability of the band of a calibrated method


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
        axis.locator_params(nbins=5)  # labels of six digits have room
    return finish(figure, title, axes[:1])


def coverage_curves(
    y: ArrayLike,
    levels: ArrayLike,
    intervals: Mapping[str, ArrayLike | tuple[ArrayLike, ArrayLike]],
    title: str = "",
) -> Any:
    """Plot the coverage of central intervals against their probability.

    Above the diagonal the intervals are too wide, below it too narrow. At each level, 95 % of
    calibrated methods lie in the grey band, by the binomial distribution of N targets.

    Args:
        y: observed targets, [N].
        levels: probabilities of the intervals, [K], between 0 and 1.
        intervals: by method: lower and upper ends, [2, K, N]. For a `Prediction` p these are
            ``p.quantile(0.5 - levels / 2), p.quantile(0.5 + levels / 2)``.
        title: title of the figure.

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
        fine, lower, upper, color="0.88", linewidth=0, label=f"{percent(_BAND)} band if calibrated"
    )
    axis.plot([0, 1], [0, 1], color="0.4", linewidth=0.8)
    for i, name, ends in methods(caller, "intervals", intervals):
        low, high = array(caller, f"intervals[{name!r}]", ends, [2, len(levels), len(y)])
        inside = ((low <= y) & (y <= high)).mean(axis=1)
        axis.plot(levels, inside, label=name, markersize=4, linewidth=1.3, **style(i))
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.set_xlabel("probability of the central interval")
    axis.set_ylabel(f"fraction of {len(y)} targets inside")
    return finish(figure, title, axes, columns=2)


def pit_histograms(pit: Mapping[str, ArrayLike], title: str = "", bins: int = 10) -> Any:
    """Plot histograms of P(Y <= y) at the observed y, which are flat for calibrated predictions.

    A peak in the middle means that the predictive distributions are too wide. Peaks at both ends
    mean that they are too narrow, and a slope means bias. In each bin, 95 % of calibrated methods
    lie in the grey band.

    Args:
        pit: by method: probability integral transforms, [N], between 0 and 1.
        title: title of the figure.
        bins: number of bins of equal width.

    Raises:
        ValueError: if there is no method, or a value is not between 0 and 1.
    """
    caller = "pit_histograms"
    entries = methods(caller, "pit", pit)
    figure, axes = panels(len(entries), 3, 3.2, "fraction of targets", sharey=True)
    highest = 0.0
    for i, name, values in entries:
        axis, values = axes[i], array(caller, f"pit[{name!r}]", values, [None])
        if not len(values) or not ((values >= 0) & (values <= 1)).all():
            found = f"from {values.min():.3g} to {values.max():.3g}" if len(values) else "empty"
            raise ValueError(f"{caller}: pit[{name!r}] is {found}, wanted values between 0 and 1")
        fraction = np.histogram(values, bins, (0, 1))[0] / len(values)
        lower, upper = (stats.binom.ppf(p, len(values), 1 / bins) / len(values) for p in _tails())
        edges = np.linspace(0, 1, bins + 1)
        color = style(i)["color"]
        label = f"{percent(_BAND)} band if uniform"
        axis.axhspan(lower, upper, color="0.88", linewidth=0, zorder=0, label=label)
        axis.bar(
            edges[:-1], fraction, 1 / bins, align="edge", color=color, edgecolor="white", alpha=0.8
        )
        axis.hlines([lower, upper], 0, 1, color="0.3", linestyle=":", linewidth=1)
        axis.axhline(1 / bins, color="0.2", linewidth=0.8)
        highest = max(highest, upper, fraction.max())
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("P(Y ≤ observed y)")
        axis.set(xlim=(0, 1), ylim=(0, 1.1 * highest))
    return finish(figure, title, axes[:1])


def reliability(
    y: ArrayLike, probabilities: Mapping[str, ArrayLike], title: str = "", bins: int = 10
) -> Any:
    """Plot accuracy against confidence, the probability of the predicted class.

    There is one panel per method. Rows are grouped into bins of equal width. Each bin that is not
    empty has a point at its mean confidence, with two binomial standard errors. The area of a point
    is proportional to its number of rows.

    Args:
        y: observed classes 0 ... C-1, [N].
        probabilities: by method: probabilities of the classes, [N, C].
        title: title of the figure.
        bins: number of bins.

    Raises:
        ValueError: if there is no method, or probabilities are not [N, C].
    """
    y = np.asarray(y)
    entries = methods("reliability", "probabilities", probabilities)
    figure, axes = panels(len(entries), 3.6, 3.9, "accuracy")
    for i, name, values in entries:
        axis, color = axes[i], style(i)["color"]
        found = array("reliability", f"probabilities[{name!r}]", values, [len(y), None])
        confidence, correct = found.max(axis=1), found.argmax(axis=1) == y
        bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
        count = np.bincount(bin_of, minlength=bins)
        kept = count > 0
        middle, accuracy = (
            np.bincount(bin_of, weights=a, minlength=bins)[kept] / count[kept]
            for a in (confidence, correct)
        )
        # From the Beta posterior: the binomial standard error of 0 or 1 would be 0.
        mean = (accuracy * count[kept] + 1) / (count[kept] + 2)
        error = 2 * np.sqrt(mean * (1 - mean) / (count[kept] + 3))
        lower, upper = np.minimum(error, accuracy), np.minimum(error, 1 - accuracy)
        axis.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, zorder=1, label="calibrated")
        axis.errorbar(
            middle, accuracy, (lower, upper), fmt="none", color=color, alpha=0.6, zorder=2,
            label="two standard errors",
        )  # fmt: skip
        axis.scatter(
            middle, accuracy, 15 + 250 * count[kept] / len(y), color=color, zorder=3,
            label="bin (area: number of rows)",
        )  # fmt: skip
        axis.set_title(f"{name}: {percent(correct.mean())} correct", fontsize=10)
        axis.set_xlabel("probability of the predicted class")
        axis.set_xlim(1 / found.shape[1] - 0.05, 1.05)
        axis.set_ylim(-0.05, 1.05)
    return finish(figure, title, axes[:1])


def _tails() -> tuple[float, float]:
    return 0.5 - _BAND / 2, 0.5 + _BAND / 2
