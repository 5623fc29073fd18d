"""Maps of a function, the runs of a study, and the sensitivity to inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dgp_ppl._checks import check_kind
from dgp_ppl.design import Sensitivity, Study
from dgp_ppl.plots._figure import COLORS, array, figure_of, finish, panels
from dgp_ppl.plots._functions import MEAN_COLORS, SD_COLORS, contours

_ORDER = "plasma"


def maps(
    x: ArrayLike,
    mean: ArrayLike,
    sd: ArrayLike,
    runs: ArrayLike | None = None,
    names: tuple[str, str, str] = ("x1", "x2", "f"),
    title: str = "",
    equal: bool = False,
) -> Any:
    """Plot mean and standard deviation over two inputs, each with a colour bar.

    Args:
        x: inputs, [N, 2], that span a plane, such as a lattice.
        mean: mean, [N].
        sd: standard deviation, [N].
        runs: inputs of the observations, [R, 2], such as wells.
        names: names of the inputs and of the function, with their units.
        title: title of the figure.
        equal: whether both inputs have one scale, as places on a map have.

    Raises:
        TypeError: if an array holds no numbers.
        ValueError: if an array has another shape, or the inputs lie on a line.
    """
    x = array("maps", "x", x, [None, 2])
    values = [array("maps", n, a, x.shape[:1]) for n, a in (("mean", mean), ("sd", sd))]
    figure, axes = figure_of(9.2, 3.9, 2)
    labels = f"{names[2]}: mean", f"{names[2]}: standard deviation"
    for axis, a, label, colors in zip(
        axes[0], values, labels, (MEAN_COLORS, SD_COLORS), strict=True
    ):
        contours(figure, axis, x, a, label, colors)
        if runs is not None:
            axis.plot(
                *array("maps", "runs", runs, [None, 2]).T, "o", color="white",
                markeredgecolor="black", markersize=4, label="observations",
            )  # fmt: skip
        axis.set_xlabel(names[0])
        axis.set_ylabel(names[1])
        if equal:
            axis.set_aspect("equal")
    return finish(figure, title, axes[0, :1])


def study(study: Study, inputs: Sequence[str] | None = None, title: str = "") -> Any:
    """Plot what a study asked when: the best run so far, and the inputs in their order.

    Args:
        study: a study that has runs.
        inputs: names of two inputs of numbers; None takes the first two, or the only one.
        title: title of the figure.

    Raises:
        TypeError: if it is no `Study`.
        ValueError: if it has no runs, or an input is unknown or no number.
    """
    check_kind("study", "study", study, Study, "a Study")
    if not len(study):
        raise ValueError("study: the study has no runs; run it, or tell some")
    results = np.asarray(study.y, float).reshape(len(study), -1)
    numbers = [n for n, a in study.x[0].items() if not isinstance(a, str)]
    names = list(numbers[:2] if inputs is None else inputs)
    if not 1 <= len(names) <= 2 or not set(names) <= set(numbers):
        raise ValueError(f"study: inputs is {names}, wanted one or two of {numbers}")
    order = np.arange(1, len(study) + 1)
    good = np.isfinite(results).all(axis=1) & (results[:, study.outputs :] <= 0).all(axis=1)
    best = np.where(good, results[:, 0], -np.inf if study.maximise else np.inf)
    best = (np.maximum if study.maximise else np.minimum).accumulate(best)
    figure, axes = figure_of(9.2, 3.9, 2)
    left, right = axes[0]
    left.plot(order[good], results[good, 0], "o", color=COLORS[0], markersize=4, label="run")
    left.plot(
        order[~good], np.full((~good).sum(), 0.02), "x", color="black", markersize=5,
        transform=left.get_xaxis_transform(), label="failed, or not feasible",
    )  # fmt: skip
    known = np.isfinite(best)
    left.step(order[known], best[known], where="post", color=COLORS[1], label="best so far")
    left.axvline(study.initial + 0.5, color="0.5", linewidth=0.8, linestyle=":")
    left.set_xlabel("run; those left of the line fill the space")
    left.set_ylabel(target := "y" if study.outputs == 1 else "y_1")
    places = [[row[n] for row in study.x] for n in names]
    places = places if len(names) == 2 else [*places, results[:, 0]]
    shown = right.scatter(*places, c=order, cmap=_ORDER, s=22, edgecolors="black", linewidths=0.4)
    figure.colorbar(shown, ax=right).set_label("run")
    right.set_xlabel(names[0])
    right.set_ylabel(names[1] if len(names) == 2 else target)
    return finish(figure, title, axes[:, :1])


def sensitivity(found: Sensitivity, target: str = "y", title: str = "") -> Any:
    """Plot Sobol indices with 90 % intervals, and main effects with bands.

    Args:
        found: what `design.sensitivity` returns.
        target: name of the function, with its unit.
        title: title of the figure.

    Raises:
        TypeError: if it is nothing of the kind.
    """
    check_kind("sensitivity", "found", found, Sensitivity, "what design.sensitivity returns")
    figure, axes = panels(1 + len(found.names), 3.2, 2.9, "share of the variance")
    place = np.arange(len(found.names))
    kinds = (("first: alone", found.first, -0.15), ("total: with others", found.total, 0.15))
    for i, (label, shares, shift) in enumerate(kinds):
        middle, low, high = _summary(shares)
        axes[0].errorbar(
            place + shift, middle, [middle - low, high - middle], fmt="os"[i], color=COLORS[i],
            markersize=5, capsize=2, label=label,
        )  # fmt: skip
    axes[0].set_xticks(place, found.names)
    axes[0].set_xlim(-0.5, len(place) - 0.5)
    axes[0].set_ylim(bottom=min(0.0, axes[0].get_ylim()[0]))
    limits = np.concatenate([_summary(effect)[1:] for effect in found.effects]).ravel()
    for name, levels, effect, axis in zip(
        found.names, found.levels, found.effects, axes[1:], strict=True
    ):
        middle, low, high = _summary(effect)
        axis.fill_between(levels, low, high, color=COLORS[2], alpha=0.25, linewidth=0)
        axis.plot(levels, middle, color=COLORS[2])
        axis.set_xlabel(name)
        axis.set_ylabel(f"mean {target}")
        room = 0.05 * (np.ptp(limits) or 1.0)
        axis.set_ylim(limits.min() - room, limits.max() + room)
    return finish(figure, title, axes[:1])


def _summary(draws: np.ndarray) -> np.ndarray:
    """Return the mean, and the ends of a 90 % interval, over the last axis."""
    return np.stack([draws.mean(axis=-1), *np.quantile(draws, [0.05, 0.95], axis=-1)])
