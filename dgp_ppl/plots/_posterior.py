"""Posteriors of inducing values v side by side, through arviz-plots: each method against NUTS, say.

arviz-plots lays its figures out with pyplot; they are taken out of pyplot's list of open figures
before they are returned.
"""

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

Values = int | Sequence[tuple[str, int, int]]


def posterior_forest(
    posteriors: Mapping[str, Any], values: Values = 6, title: str = "", level: float = 0.9
) -> Any:
    """Medians with their 50 % and `level` intervals, a row for each inducing value.

    Args:
        posteriors: by method, an ArviZ data tree (of `dgp_ppl.to_inferencedata`, say) whose
            group ``posterior`` has ``l1.v``, ``l2.v``, ... with dimensions (chain, draw, M, P); or
            draws by site, [C, S, M, P] (``Chains.samples``, say).
        values: which inducing values: (site, m, p) of each, or how many of every layer, evenly
            spaced.
        title: of the figure.
        level: probability of the outer intervals; the inner ones have 50 %.

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
    figure = _taken(collection)
    names, axis = figure.axes
    names.set_axis_off()  # of which the texts stay
    plain(axis)
    axis.tick_params(labelsize=9)
    axis.set_xlabel(f"whitened inducing value: median, 50 % and {percent(level)} intervals")
    return _with_methods(figure, trees, title)


def posterior_pair(posteriors: Mapping[str, Any], values: Values = 2, title: str = "") -> Any:
    """Draws of inducing values against each other, and their marginal densities.

    Args:
        posteriors: by method, as of `posterior_forest`; the last ones are drawn on top.
        values: as of `posterior_forest`; two or more in all.
        title: of the figure.

    Raises:
        ValueError: as `posterior_forest`; if there is one value alone.
    """
    trees, labels = _trees("posterior_pair", posteriors, values)
    if len(labels) < 2:
        raise ValueError(f"posterior_pair: values are {labels}, wanted two or more")

    colors, _ = _styles(trees)
    side = 1.9 * len(labels) + 0.6
    matrix = _arviz_plots().plot_pair(
        trees, backend="matplotlib", marginal_kind="kde", facet_dims=["__variable__"],
        # Version 0.8 wants heights of intervals, which are not drawn here.
        aes={"color": ["model"], "overlay": ["model"], "y": ["model"]}, color=colors,
        aes_by_visuals={"scatter": ["color", "overlay"], "dist": ["color"]},
        visuals={"scatter": {"alpha": 0.35, "size": 5}},
        figure_kwargs={
            "figsize": (side, side), "figsize_units": "inches", "layout": "constrained",
        },
    )  # fmt: skip
    figure = _taken(matrix)
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.label.set_size(9)
        axis.yaxis.label.set_size(9)
        place = axis.get_subplotspec()
        if place.rowspan.start == place.colspan.start:
            axis.set_yticks([])
            axis.set_ylabel("density", fontsize=9)
    return _with_methods(figure, trees, title, line=True)


def posterior_rank(posteriors: Mapping[str, Any], values: Values = 4, title: str = "") -> Any:
    """Whether the methods' draws are of one law: ranks of each one's among those of all together.

    A panel for each inducing value, with the distribution function of a method's fractional ranks
    less that of uniform ones, and the band that holds 99 % of all curves if the laws are one. A
    curve that falls and rises again is of a law narrower than the others, one above or below
    throughout is shifted. Draws are thinned to the least bulk effective sample size of all, as the
    band is that of independent ones (Säilynoja et al. 2022).

    Args:
        posteriors: by method, two or more, as of `posterior_forest`.
        values: as of `posterior_forest`.
        title: of the figure.

    Raises:
        ValueError: as `posterior_forest`; if there is one method alone.
    """
    if len(posteriors) == 1:
        raise ValueError(
            f"posterior_rank: posteriors has {list(posteriors)} alone, wanted two methods or more"
        )
    trees, labels = _trees("posterior_rank", posteriors, values)
    import xarray

    num = _least_size(posteriors, trees)
    groups = [tree["posterior"].to_dataset().isel(chain=0) for tree in trees.values()]
    kept = [
        d.isel(draw=_spaced(d.sizes["draw"], num)).assign_coords(draw=range(num)) for d in groups
    ]
    together = xarray.concat(kept, dim="chain").assign_coords(chain=list(trees))
    options: dict[str, Any] = {}
    if "method" in inspect.signature(_arviz_plots().plot_rank).parameters:  # arviz-plots 1.x
        options = {"method": "envelope", "thin": False}
    columns = min(4, len(labels))
    rows = -(-len(labels) // columns)
    collection = _arviz_plots().plot_rank(
        xarray.DataTree.from_dict({"posterior": together}), backend="matplotlib",
        color=_styles(trees)[0], col_wrap=columns,
        visuals={"remove_axis": False, "title": {"size": 10}, "xlabel": False},
        figure_kwargs={
            "figsize": (2.6 * columns + 0.5, 2.4 * rows + 0.7), "figsize_units": "inches",
            "layout": "constrained", "sharey": True,
        }, **options,
    )  # fmt: skip
    figure = _taken(collection)
    for i, axis in enumerate(figure.axes):
        plain(axis)
        for curve in axis.lines:
            _whole(curve)
        axis.tick_params(labelsize=8)
        if i % columns == 0:
            axis.set_ylabel("share of ranks below,\nless the uniform's", fontsize=9)
        if i // columns == rows - 1:
            axis.set_xlabel("fractional rank", fontsize=9)
    return _with_methods(figure, trees, title, line=True)


def _arviz_plots() -> Any:
    """The package; 0.8 (Python 3.11) wants a module that Matplotlib 3.11 deprecates."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", category)
        with contextlib.suppress(ImportError):
            importlib.import_module("matplotlib.style.core")
        importlib.import_module("arviz_plots.backend.matplotlib")
        return importlib.import_module("arviz_plots")


def _trees(
    caller: str, posteriors: Mapping[str, Any], values: Values
) -> tuple[dict[str, Any], list[str]]:
    """By method a tree of scalars named in words, as many draws of each; and their names."""
    import xarray

    not_empty(caller, "posteriors", posteriors)
    groups = {n: _group(caller, n, tree) for n, tree in posteriors.items()}
    chosen = _chosen(caller, next(iter(groups.values())), values)
    found: dict[str, dict[str, np.ndarray]] = {}
    for method, group in groups.items():
        found[method] = {}
        for site, m, p in chosen:
            shape = group[site].shape[2:] if site in group else None
            if shape is None or len(shape) != 2 or not (0 <= m < shape[0] and 0 <= p < shape[1]):
                had = "no such site" if shape is None else f"it of shape {list(shape)}"
                raise ValueError(
                    f"{caller}: values names {site}[{m}, {p}], and posteriors[{method!r}] has {had}"
                )
            label = index_label(site, (m, p), shape[1])
            found[method][label] = np.asarray(group[site])[:, :, m, p].ravel()
    num = min(len(a) for own in found.values() for a in own.values())
    trees = {}
    for method, own in found.items():
        arrays = {n: (("chain", "draw"), a[None, _spaced(len(a), num)]) for n, a in own.items()}
        coords = {"chain": [0], "draw": np.arange(num)}
        trees[method] = xarray.DataTree.from_dict({"posterior": xarray.Dataset(arrays, coords)})
    return trees, list(next(iter(found.values())))


def _group(caller: str, method: str, tree: Any) -> Any:
    """The posterior's dataset."""
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


def _chosen(caller: str, group: Any, values: Values) -> list[tuple[str, int, int]]:
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
    chosen = []
    for site in sites:
        M, P = group[site].shape[2:]
        chosen += [(site, int(i) // P, int(i) % P) for i in _spaced(M * P, values)]
    return chosen


def _least_size(posteriors: Mapping[str, Any], trees: Mapping[str, Any]) -> int:
    """The least bulk effective sample size of the values shown, at most the draws there are."""
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    least = []
    for method, tree in trees.items():
        shown = tree["posterior"]
        chains = _group("posterior_rank", method, posteriors[method]).sizes["chain"]
        for name in shown.data_vars:
            draws = np.asarray(shown[name]).ravel()
            each = len(draws) // chains
            split = draws[: chains * each].reshape(chains, each)
            enough = each >= 4 and np.ptp(split) > 0
            least.append(statistics.ess(split, chain_axis=0, draw_axis=1) if enough else len(draws))
    total = next(iter(trees.values()))["posterior"].sizes["draw"]
    return int(np.clip(np.nanmin(least), min(20, total), total))


def _spaced(total: int, num: int) -> np.ndarray:
    return np.linspace(0, total - 1, min(num, total)).round().astype(int)


def _whole(curve: Any) -> None:
    """Add what arviz-plots 0.8 leaves out before the first rank and after the last one."""
    x, y = curve.get_data()
    before, after = np.linspace(0, x[0], 50), np.linspace(x[-1], 1, 50)
    curve.set_data(
        np.concatenate([before, x, after]), np.concatenate([-before, y, y[-1] - (after - x[-1])])
    )


def _styles(trees: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    styles = [style(i) for i in range(len(trees))]
    return [s["color"] for s in styles], [s["marker"] for s in styles]


def _taken(collection: Any) -> Any:
    """The figure of a plot collection, no longer among pyplot's."""
    from matplotlib import pyplot

    figure = collection.viz["figure"].item()
    pyplot.close(figure)
    return figure


def _with_methods(figure: Any, trees: Mapping[str, Any], title: str, line: bool = False) -> Any:
    """Title and a legend of the methods below all panels."""
    from matplotlib.lines import Line2D

    handles = {}
    for i, name in enumerate(trees):
        own = style(i)
        shape: dict[str, Any] = {} if line else {"marker": own["marker"]}
        handles[name] = Line2D([], [], color=own["color"], **shape)
    legend_below(figure, handles)
    return finish(figure, title)
