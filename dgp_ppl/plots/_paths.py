"""A diffusion guide's paths, from noise to posterior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dgp_ppl._checks import as_array
from dgp_ppl.plots._figure import COLORS, figure_of, finish, layer_label, not_empty, plain

_SHOWN = 12  # number of single paths
_SNAPSHOTS = 4
_EXACT = "0.55"


def diffusion_paths(
    states: Mapping[str, ArrayLike], exact: Mapping[str, ArrayLike] | None = None, title: str = ""
) -> Any:
    """Plot the paths from noise to the posterior of the two inducing values that move most.

    These are the values whose mean and standard deviation change most. The upper panels show their
    plane at some steps, with exact draws in grey. The lower panels show median, 50 % and 90 % bands
    of the paths against the step, some single paths, and at the right end the same quantiles of the
    exact draws.

    Args:
        states: by site, [S, K + 1, M, P], from `dgp_ppl.diffusion_paths`.
        exact: by site, draws from the exact posterior, [S', M, P], or with leading axes for chains.
        title: title of the figure.

    Raises:
        ValueError: if there are fewer than two inducing values, or shapes do not fit.
    """
    caller = "diffusion_paths"
    not_empty(caller, "states", states)
    arrays = {
        n: np.asarray(as_array(caller, f"states[{n!r}]", a), float) for n, a in states.items()
    }
    for n, a in arrays.items():
        if a.ndim != 4 or a.shape[1] < 2:
            raise ValueError(f"{caller}: states[{n!r}] has shape {a.shape}, wanted [S, K+1, M, P]")
    labels, paths, truths = [], [], []
    for site, m, p in _most_moved(arrays):
        M, P = arrays[site].shape[2:]
        index = f"{m}, {p}" if P > 1 else m
        labels.append(f"{layer_label(site)}: v[{index}]")
        paths.append(arrays[site][:, :, m, p])
        truths.append(_exact_draws(caller, exact, site, (M, P))[:, m, p] if exact else None)

    steps = paths[0].shape[1] - 1
    figure, _ = figure_of(2.6 * _SNAPSHOTS + 0.4, 6.2)
    figure.clear()
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.05])
    panels = above.subplots(1, _SNAPSHOTS, sharex=True, sharey=True)
    for axis, k in zip(panels, np.linspace(0, steps, _SNAPSHOTS).round().astype(int), strict=True):
        plain(axis)
        if exact:
            axis.plot(*truths, ".", color=_EXACT, markersize=3, alpha=0.5, label="exact draws")
        axis.plot(
            paths[0][:, k], paths[1][:, k], "o", color=COLORS[0], markersize=2.5, alpha=0.6,
            label="paths",
        )  # fmt: skip
        suffix = {0: " (noise)", steps: " (posterior)"}.get(int(k), "")
        axis.set_title(f"step {k} of {steps}{suffix}", fontsize=10)
        axis.set_xlabel(labels[0])
    panels[0].set_ylabel(labels[1])
    lower = below.subplots(1, 2)
    for axis, label, path, truth in zip(lower, labels, paths, truths, strict=True):
        plain(axis)
        _trajectories(axis, path, truth)
        axis.set_ylabel(label)
    return finish(figure, title, [panels[0], lower[0]], columns=5)


def _trajectories(axis: Any, path: np.ndarray, truth: np.ndarray | None) -> None:
    steps = np.arange(path.shape[1])
    levels = np.array([5, 25, 50, 75, 95])
    q = np.percentile(path, levels, axis=0)
    axis.fill_between(steps, q[0], q[4], color=COLORS[0], alpha=0.15, lw=0, label="90 % of paths")
    axis.fill_between(steps, q[1], q[3], color=COLORS[0], alpha=0.25, lw=0, label="50 % of paths")
    for i, single in enumerate(path[:_SHOWN]):
        label = None if i else "single paths"
        axis.plot(steps, single, color=COLORS[1], linewidth=0.6, alpha=0.7, label=label)
    axis.plot(steps, q[2], color=COLORS[0], linewidth=2, label="median")
    if truth is not None:
        low, first, middle, third, high = np.percentile(truth, levels)
        at = steps[-1] + 0.06 * steps[-1]
        label = "exact draws: median, 50 % and 90 %"
        axis.plot([at, at], [low, high], color=_EXACT, linewidth=1.5, label=label)
        axis.plot([at, at], [first, third], color=_EXACT, linewidth=5, solid_capstyle="butt")
        axis.plot([at], [middle], "_", color="black", markersize=11)
    stride = max(1, steps[-1] // 8)
    axis.set_xticks(steps[::stride])
    axis.set_xlabel(f"step (0: noise, {steps[-1]}: posterior)")


def _most_moved(states: Mapping[str, np.ndarray]) -> list[tuple[str, int, int]]:
    """Return the two values that change most: in mean, per standard deviation, and in its log."""
    moved = []
    for site, a in states.items():
        first, last = a[:, 0], a[:, -1]
        spread = np.maximum(first.std(axis=0), 1e-12)
        shift = np.abs(last.mean(axis=0) - first.mean(axis=0)) / spread
        change = shift + np.abs(np.log(np.maximum(last.std(axis=0), 1e-12) / spread))
        moved += [(change[m, p], site, m, p) for m, p in np.ndindex(*change.shape)]
    if len(moved) < 2:
        raise ValueError("diffusion_paths: states have one inducing value, wanted two or more")
    best = sorted(moved, key=lambda a: -a[0])[:2]
    return sorted((site, m, p) for _, site, m, p in best)  # in the order of the sites


def _exact_draws(
    caller: str, exact: Mapping[str, ArrayLike], site: str, shape: tuple[int, int]
) -> np.ndarray:
    draws = np.asarray(as_array(caller, f"exact[{site!r}]", exact.get(site, np.zeros(0))), float)
    if draws.ndim < 3 or draws.shape[-2:] != shape:
        raise ValueError(
            f"{caller}: exact[{site!r}] has shape {draws.shape}, wanted [S, {shape[0]}, {shape[1]}]"
        )
    return draws.reshape(-1, *shape)
