"""Posteriors of inducing values v under several methods, by arviz-plots.

arviz-plots creates its figures with pyplot. They are removed from pyplot's open figures before they
are returned.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgp_ppl.plots._figure import (
    finish,
    index_label,
    legend_below,
    not_empty,
    percent,
    plain,
    style,
)

__all__ = ["posterior_forest", "posterior_pair", "posterior_rank"]

Selection = int | Sequence[tuple[str, int, int]]


def posterior_forest(
    posteriors: Mapping[str, Any],
    values: Selection = 6,
    title: str = "",
    level: float = 0.9,
) -> Any:
    """Plot medians with 50 % and `level` intervals: one row per inducing value.

    Args:
        posteriors: by method, an ArviZ data tree (of `dgp_ppl.to_inferencedata`, say) with
            ``l1.v``, ``l2.v``, ... in the group ``posterior``, dimensions (chain, draw, M, P); or
            draws by site, [C, S, M, P] (``Chains.samples``, say).
        values: the inducing values, (site, m, p) each; or their number in every layer, evenly
            spaced.
        title: title of the figure.
        level: probability of the outer intervals. That of the inner ones is 50 %.

    Raises:
        ValueError: if there is no method, or a method lacks a site or value.
    """
    trees, labels = _trees("posterior_forest", posteriors, values)

    colors, markers = _styles(trees)
    collection = _arviz_plots().plot_forest(
        trees, combined=True, ci_kind="eti", ci_probs=(0.5, level), point_estimate="median",
        backend="matplotlib", aes={"color": ["model"], "marker": ["model"]},
        color=colors, marker=markers,
        aes_by_visuals={"credible_interval": ["y", "color", "overlay"]},
        visuals={"point_estimate": {"size": 22}, "labels": {"size": 9}},
        figure_kwargs={
            "figsize": (7, 1.4 + 0.12 * len(labels) * (1 + len(trees))), "figsize_units": "inches",
            "layout": "constrained", "width_ratios": (1, 4),
        },
    )  # fmt: skip
    figure = _detach(collection)
    names, axis = figure.axes
    names.set_axis_off()  # keeps its texts
    plain(axis)
    axis.tick_params(labelsize=9)
    axis.set_xlabel(f"whitened inducing value: median, 50 % and {percent(level)} intervals")
    return _with_methods(figure, trees, title)


def posterior_pair(posteriors: Mapping[str, Any], values: Selection = 2, title: str = "") -> Any:
    """Plot draws of pairs of inducing values, and the marginal densities.

    Args:
        posteriors: as for `posterior_forest`; later methods are on top.
        values: as for `posterior_forest`; at least two in total.
        title: title of the figure.

    Raises:
        ValueError: as `posterior_forest`; if there is only one value.
    """
    trees, labels = _trees("posterior_pair", posteriors, values)
    if len(labels) < 2:
        raise ValueError(f"posterior_pair: values are {labels}, wanted two or more")

    colors, _ = _styles(trees)
    side = 1.9 * len(labels) + 0.6
    matrix = _arviz_plots().plot_pair(
        trees, backend="matplotlib", marginal_kind="kde", facet_dims=["__variable__"],
        # Version 0.8 requires "y", the heights of intervals, which are not shown here.
        aes={"color": ["model"], "overlay": ["model"], "y": ["model"]}, color=colors,
        aes_by_visuals={"scatter": ["color", "overlay"], "dist": ["color"]},
        visuals={"scatter": {"alpha": 0.35, "size": 5}},
        figure_kwargs={
            "figsize": (side, side), "figsize_units": "inches", "layout": "constrained",
        },
    )  # fmt: skip
    figure = _detach(matrix)
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.label.set_size(9)
        axis.yaxis.label.set_size(9)
        cell = axis.get_subplotspec()
        if cell.rowspan.start == cell.colspan.start:
            axis.set_yticks([])
            axis.set_ylabel("density", fontsize=9)
    return _with_methods(figure, trees, title, line=True)


def posterior_rank(posteriors: Mapping[str, Any], values: Selection = 4, title: str = "") -> Any:
    """Plot the ranks of each method's draws among the draws of all methods.

    Each inducing value has a panel with the distribution function of the fractional ranks minus the
    uniform one. If all methods have the same distribution, 99 % of the curves stay in the band. A
    curve that falls and then rises belongs to a narrower distribution. A curve on one side of zero
    belongs to a shifted one. The band assumes independent draws, so draws are thinned to the
    smallest bulk effective sample size.

    Args:
        posteriors: two or more methods, as for `posterior_forest`.
        values: as for `posterior_forest`.
        title: title of the figure.

    Raises:
        ValueError: as `posterior_forest`; if there is only one method.

    Source: Säilynoja, Bürkner and Vehtari 2022, "Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison".
    """
    if len(posteriors) == 1:
        raise ValueError(
            f"posterior_rank: posteriors has {list(posteriors)} only, wanted two or more methods"
        )
    trees, labels = _trees("posterior_rank", posteriors, values)
    import xarray

    num = _smallest_sample_size(posteriors, trees)
    groups = [tree["posterior"].to_dataset().isel(chain=0) for tree in trees.values()]
    thinned = [
        d.isel(draw=_spaced(d.sizes["draw"], num)).assign_coords(draw=range(num)) for d in groups
    ]
    combined = xarray.concat(thinned, dim="chain").assign_coords(chain=list(trees))
    options: dict[str, Any] = {}
    if "method" in inspect.signature(_arviz_plots().plot_rank).parameters:  # arviz-plots 1.x
        options = {"method": "envelope", "thin": False}
    columns = min(4, len(labels))
    rows = -(-len(labels) // columns)
    collection = _arviz_plots().plot_rank(
        xarray.DataTree.from_dict({"posterior": combined}), backend="matplotlib",
        color=_styles(trees)[0], col_wrap=columns,
        visuals={"remove_axis": False, "title": {"size": 10}, "xlabel": False},
        figure_kwargs={
            "figsize": (2.6 * columns + 0.5, 2.4 * rows + 0.7), "figsize_units": "inches",
            "layout": "constrained", "sharey": True,
        }, **options,
    )  # fmt: skip
    figure = _detach(collection)
    for i, axis in enumerate(figure.axes):
        plain(axis)
        for curve in axis.lines:
            _complete(curve)
        axis.tick_params(labelsize=8)
        if i % columns == 0:
            axis.set_ylabel("ECDF of ranks\nminus uniform", fontsize=9)
        if i // columns == rows - 1:
            axis.set_xlabel("fractional rank", fontsize=9)
    return _with_methods(figure, trees, title, line=True)


def _arviz_plots() -> Any:
    """Import the package; 0.8 (Python 3.11) needs a module that Matplotlib 3.11 deprecates."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", category)
        with contextlib.suppress(ImportError):
            importlib.import_module("matplotlib.style.core")
        importlib.import_module("arviz_plots.backend.matplotlib")
        return importlib.import_module("arviz_plots")


def _trees(
    caller: str, posteriors: Mapping[str, Any], values: Selection
) -> tuple[dict[str, Any], list[str]]:
    """Return by method a tree of labelled scalars, with equally many draws, and the labels."""
    import xarray

    not_empty(caller, "posteriors", posteriors)
    groups = {n: _posterior_group(caller, n, tree) for n, tree in posteriors.items()}
    selected = _selected(caller, next(iter(groups.values())), values)
    found: dict[str, dict[str, np.ndarray]] = {}
    for method, group in groups.items():
        found[method] = {}
        for site, m, p in selected:
            shape = group[site].shape[2:] if site in group else None
            if shape is None or len(shape) != 2 or not (0 <= m < shape[0] and 0 <= p < shape[1]):
                found_shape = "no such site" if shape is None else f"it of shape {list(shape)}"
                raise ValueError(
                    f"{caller}: values names {site}[{m}, {p}], and posteriors[{method!r}] has "
                    f"{found_shape}, wanted a value that every method has"
                )
            label = index_label(site, (m, p), shape[1])
            found[method][label] = np.asarray(group[site])[:, :, m, p].ravel()
    num = min(len(a) for draws in found.values() for a in draws.values())
    trees = {}
    for method, draws in found.items():
        arrays = {n: (("chain", "draw"), a[None, _spaced(len(a), num)]) for n, a in draws.items()}
        coords = {"chain": [0], "draw": np.arange(num)}
        trees[method] = xarray.DataTree.from_dict({"posterior": xarray.Dataset(arrays, coords)})
    return trees, list(next(iter(found.values())))


def _posterior_group(caller: str, method: str, tree: Any) -> Any:
    """Return the dataset of posterior draws."""
    import xarray

    if isinstance(tree, dict):
        dims = {n: ("chain", "draw", *(f"{n}.{i}" for i in range(np.ndim(a) - 2)))
                for n, a in tree.items()}  # fmt: skip
        fits = {n: a for n, a in tree.items() if np.ndim(a) >= 2}
        return xarray.Dataset({n: (dims[n], np.asarray(a)) for n, a in fits.items()})
    group = tree["posterior"] if "posterior" in getattr(tree, "children", {}) else tree
    if not hasattr(group, "data_vars"):
        raise ValueError(
            f"{caller}: posteriors[{method!r}] is {type(tree).__name__}, wanted an ArviZ data tree "
            "with a group 'posterior', or a dict of draws by site; see to_inferencedata"
        )
    return group


def _selected(caller: str, group: Any, values: Selection) -> list[tuple[str, int, int]]:
    if not isinstance(values, int):
        not_empty(caller, "values", values)
        return [(site, m, p) for site, m, p in values]
    if values < 1:
        raise ValueError(f"{caller}: values is {values}, wanted at least 1")
    sites = [n for n in group.data_vars if str(n).endswith(".v") and group[n].ndim == 4]
    if not sites:
        raise ValueError(
            f"{caller}: posteriors have {list(group.data_vars)}, wanted inducing values NAME.v "
            "with dimensions (chain, draw, M, P)"
        )
    selected = []
    for site in sites:
        M, P = group[site].shape[2:]
        selected += [(site, int(i) // P, int(i) % P) for i in _spaced(M * P, values)]
    return selected


def _smallest_sample_size(posteriors: Mapping[str, Any], trees: Mapping[str, Any]) -> int:
    """Return the smallest bulk effective sample size of the values, at most the draws."""
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    sizes = []
    for method, tree in trees.items():
        shown = tree["posterior"]
        chains = _posterior_group("posterior_rank", method, posteriors[method]).sizes["chain"]
        for name in shown.data_vars:
            draws = np.asarray(shown[name]).ravel()
            each = len(draws) // chains
            split = draws[: chains * each].reshape(chains, each)
            defined = each >= 4 and np.ptp(split) > 0
            sizes.append(
                statistics.ess(split, chain_axis=0, draw_axis=1) if defined else len(draws)
            )
    total = next(iter(trees.values()))["posterior"].sizes["draw"]
    return int(np.clip(np.nanmin(sizes), min(20, total), total))


def _spaced(total: int, num: int) -> np.ndarray:
    return np.linspace(0, total - 1, min(num, total)).round().astype(int)


def _complete(curve: Any) -> None:
    """Extend the curve before the first rank and after the last, as arviz-plots 0.8 does not."""
    x, y = curve.get_data()
    before, after = np.linspace(0, x[0], 50), np.linspace(x[-1], 1, 50)
    curve.set_data(
        np.concatenate([before, x, after]), np.concatenate([-before, y, y[-1] - (after - x[-1])])
    )


def _styles(trees: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    styles = [style(i) for i in range(len(trees))]
    return [s["color"] for s in styles], [s["marker"] for s in styles]


def _detach(collection: Any) -> Any:
    """Return the figure of a plot collection, and close it in pyplot."""
    from matplotlib import pyplot

    figure = collection.viz["figure"].item()
    pyplot.close(figure)
    return figure


def _with_methods(figure: Any, trees: Mapping[str, Any], title: str, line: bool = False) -> Any:
    """Add a title, and a legend of the methods below all panels."""
    from matplotlib.lines import Line2D

    handles = {}
    for i, name in enumerate(trees):
        method_style = style(i)
        marker: dict[str, Any] = {} if line else {"marker": method_style["marker"]}
        handles[name] = Line2D([], [], color=method_style["color"], **marker)
    legend_below(figure, handles)
    return finish(figure, title)
