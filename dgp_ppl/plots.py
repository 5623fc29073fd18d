"""Pictures of a comparison. Every function returns a matplotlib figure; none touches pyplot."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "COLORS", "function_bands", "predicted_against_observed", "reliability", "training_curves",
]  # fmt: skip

# Okabe & Ito (2008): distinct to colour-blind readers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def training_curves(
    elbo_per_datum: Mapping[str, ArrayLike], title: str = "", units: str = "nats"
) -> Any:
    """ELBO per datum against step, one line a method: a running mean over 1 % of the steps.

    The vertical axis leaves out the climb from the start: it shows the last nine tenths of steps.
    """
    figure, (axis,) = _figure(7, 4)
    low, high = np.inf, -np.inf
    for color, (name, values) in zip(COLORS, elbo_per_datum.items(), strict=False):
        values = np.asarray(values, float)
        window = max(1, len(values) // 100)
        smooth = np.convolve(values, np.full(window, 1 / window), mode="valid")
        steps = np.arange(len(smooth)) + window
        axis.plot(steps, smooth, color=color, label=name, linewidth=1.5)
        late = smooth[len(smooth) // 10 :]
        low, high = min(low, late.min()), max(high, late.max())
    margin = 0.05 * (high - low) or 0.1
    axis.set_ylim(low - margin, high + margin)
    axis.set_xlabel("step")
    axis.set_ylabel(f"ELBO per datum ({units})")
    axis.set_title(title)
    axis.legend(frameon=False)
    return figure


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
        target: name of the target.
        title: of the figure.
        level: the interval's probability.
    """
    y = np.asarray(y, float)
    figure, axes = _figure(4 * len(predictions) + 0.5, 4.2, len(predictions))
    ends = [np.asarray(a, float) for p in predictions.values() for a in p]
    low, high = min(y.min(), *(a.min() for a in ends)), max(y.max(), *(a.max() for a in ends))
    for axis, color, (name, bands) in zip(axes, COLORS, predictions.items(), strict=False):
        mean, lower, upper = (np.asarray(a, float) for a in bands)
        inside = (lower <= y) & (y <= upper)
        axis.plot([low, high], [low, high], color="0.4", linewidth=0.8, zorder=1)
        axis.vlines(y, lower, upper, color=color, alpha=0.25, linewidth=1, zorder=2)
        axis.plot(y[inside], mean[inside], ".", color=color, markersize=4, zorder=3)
        axis.plot(y[~inside], mean[~inside], "x", color="black", markersize=4, zorder=4)
        axis.set_title(f"{name}: {inside.mean():.0%} inside the {level:.0%} interval", fontsize=10)
        axis.set_xlabel(f"observed {target}")
        axis.set_aspect("equal", adjustable="datalim")
    axes[0].set_ylabel(f"predicted {target}")
    figure.suptitle(title)
    return figure


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
    """
    y = np.asarray(y)
    figure, axes = _figure(3.6 * len(probabilities) + 0.5, 3.9, len(probabilities))
    for axis, color, (name, values) in zip(axes, COLORS, probabilities.items(), strict=False):
        array = np.asarray(values, float)
        confidence, right = array.max(axis=1), array.argmax(axis=1) == y
        found = np.minimum((confidence * bins).astype(int), bins - 1)
        count = np.bincount(found, minlength=bins)
        kept = count > 0
        middle, share = (
            np.bincount(found, weights=a, minlength=bins)[kept] / count[kept]
            for a in (confidence, right)
        )
        # Of the Beta posterior, as a share of 0 or 1 has no error of its own.
        wilson = (share * count[kept] + 1) / (count[kept] + 2)
        error = 2 * np.sqrt(wilson * (1 - wilson) / (count[kept] + 3))
        lower, upper = np.minimum(error, share), np.minimum(error, 1 - share)
        axis.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, zorder=1)
        axis.errorbar(middle, share, (lower, upper), fmt="none", color=color, alpha=0.6, zorder=2)
        axis.scatter(middle, share, 15 + 250 * count[kept] / len(y), color=color, zorder=3)
        axis.set_title(f"{name}: {right.mean():.1%} right", fontsize=10)
        axis.set_xlabel("probability of the predicted class")
        axis.set_xlim(1 / array.shape[1] - 0.05, 1.05)
        axis.set_ylim(-0.05, 1.05)
    axes[0].set_ylabel("share that is right")
    figure.suptitle(title)
    return figure


def function_bands(
    x: ArrayLike,
    y: ArrayLike,
    grid: ArrayLike,
    bands: Mapping[str, Mapping[str, ArrayLike]],
    names: tuple[str, str] = ("x", "y"),
    title: str = "",
) -> Any:
    """A function of one input with predictive bands, a panel for each method.

    Args:
        x: observed inputs, [N].
        y: observed targets, [N].
        grid: inputs of the curves, [G].
        bands: by method: ``mean`` [G], ``lower`` and ``upper`` (90 % of y) [G], and ``draws`` of
            the function [S, G].
        names: of the input and the target.
        title: of the figure.
    """
    grid = np.asarray(grid, float)
    figure, axes = _figure(4 * len(bands) + 0.5, 3.8, len(bands))
    for axis, color, (name, band) in zip(axes, COLORS, bands.items(), strict=False):
        axis.fill_between(
            grid, np.asarray(band["lower"]), np.asarray(band["upper"]),
            color=color, alpha=0.18, linewidth=0, label="90 % of y",
        )  # fmt: skip
        for i, draw in enumerate(np.asarray(band["draws"])):
            label = "draws of f" if i == 0 else None
            axis.plot(grid, draw, color=color, alpha=0.5, linewidth=0.7, label=label)
        axis.plot(grid, np.asarray(band["mean"]), color=color, linewidth=2, label="mean")
        axis.plot(np.asarray(x), np.asarray(y), ".", color="black", markersize=4, label="data")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(names[0])
        axis.sharey(axes[0])
    axes[0].set_ylabel(names[1])
    axes[-1].legend(frameon=False, fontsize=8)
    figure.suptitle(title)
    return figure
