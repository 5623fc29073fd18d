"""Functions with predictive bands, of a whole model and of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dgp_ppl._checks import as_array, check_positive, short_list
from dgp_ppl.plots._figure import (
    COLORS,
    array,
    figure_of,
    finish,
    input_label,
    layer_label,
    not_empty,
    panels,
    percent,
    style,
)  # fmt: skip
from dgp_ppl.prediction import LayerFunction

MEAN_COLORS, SD_COLORS = "viridis", "cividis"  # ordered by lightness, safe for colour-blind readers
_CONTOURS = 12


def function_bands(
    x: ArrayLike,
    y: ArrayLike,
    grid: ArrayLike,
    bands: Mapping[str, Mapping[str, ArrayLike]],
    names: tuple[str, str] = ("x", "y"),
    title: str = "",
) -> Any:
    """Plot a function of one input with predictive bands: one panel per method.

    Args:
        x: observed inputs, [N].
        y: observed targets, [N].
        grid: inputs of the curves, [G].
        bands: by method: ``mean``, [G]; ``lower`` and ``upper`` ends of a 90 % interval of y, [G];
            and ``draws`` of the function, [S, G].
        names: names of the input and the target.
        title: title of the figure.

    Raises:
        TypeError: if an array holds no numbers.
        ValueError: if there is no method, a method lacks an array, or an array has another length.
    """
    caller = "function_bands"
    grid = array(caller, "grid", grid, [None])
    x, y = (np.ravel(as_array(caller, n, a)) for n, a in (("x", x), ("y", y)))
    not_empty(caller, "bands", bands)
    for name, band in bands.items():
        if missing := {"mean", "lower", "upper", "draws"} - band.keys():
            raise ValueError(f"{caller}: bands[{name!r}] has no {short_list(sorted(missing))}")
    figure, axes = panels(len(bands), 4, 3.9, names[1], sharey=True)
    for i, (name, band) in enumerate(bands.items()):
        axis, color = axes[i], style(i)["color"]
        lower, upper, mean = (
            array(caller, f"bands[{name!r}][{n!r}]", band[n], grid.shape)
            for n in ("lower", "upper", "mean")
        )
        draws = array(caller, f"bands[{name!r}]['draws']", band["draws"], [None, *grid.shape])
        _band(axis, grid, lower, upper, mean, draws, color, "90 % interval of y")
        axis.plot(x, y, ".", color="black", markersize=4, label="data")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(names[0])
    return finish(figure, title, axes[:1])


def layers(
    functions: Mapping[str, LayerFunction],
    names: Sequence[str] | None = None,
    title: str = "",
    level: float = 0.9,
) -> Any:
    """Plot each layer's outputs as functions of the layer's inputs, with its inducing inputs.

    A layer with one input shows mean, band and draws of each output, and the interval of the
    function at the inducing inputs. Ticks at the bottom mark the inputs at which the layer is
    called. A layer with two inputs shows mean and standard deviation of each output as maps.

    Args:
        functions: by layer, from `dgp_ppl.layer_functions`.
        names: names of the model's inputs, with their units.
        title: title of the figure.
        level: probability of bands and intervals.

    Raises:
        ValueError: if there is no layer, or a layer has more than two inputs.
    """
    check_positive("layers", "level", level, most=1.0)
    not_empty("layers", "functions", functions)
    dims = {n: f.inputs.shape[1] for n, f in functions.items()}
    if max(dims.values()) > 2:
        wide = next(n for n in dims if dims[n] > 2)
        raise ValueError(
            f"layers: functions[{wide!r}] has {dims[wide]} inputs, wanted one or two; leave it out"
        )
    widths = {n: f.mean.shape[1] for n, f in functions.items()}
    outputs = [(n, p) for n, width in widths.items() for p in range(width)]
    planar = max(dims.values()) == 2  # one row per output: mean and standard deviation
    columns, rows = (2, len(outputs)) if planar else (max(widths.values()), len(functions))
    figure, axes = figure_of(max(5.5, 4.1 * columns), 3.1 * rows + 0.5, columns, rows)
    for axis in axes.flat:
        axis.set_axis_off()
    order = list(functions)
    for k, (name, p) in enumerate(outputs):
        index, dim = order.index(name), dims[name]
        previous = layer_label(order[index - 1]) if index else None
        cells = axes[k, :dim] if planar else axes[index, p : p + 1]
        label = _output_label(name, p, widths[name])
        if dim == 1:
            _line_panel(cells[0], functions[name], p, level)
            cells[0].set_ylabel(label)
        else:
            _surface_panels(figure, cells, functions[name], p, label)
        for axis in cells:
            axis.set_axis_on()
            axis.set_xlabel(input_label(names, previous, 0, dim))
            if dim == 2:
                axis.set_ylabel(input_label(names, previous, 1, 2))
    return finish(figure, title, axes, columns=3)


def hidden_maps(
    functions: Mapping[str, LayerFunction], names: Sequence[str] | None = None, title: str = ""
) -> Any:
    """Plot each layer's outputs as functions of the model's inputs, through all layers before.

    For one input these are the passes and their mean, for two a map of the mean over the passes.

    Args:
        functions: by layer, from `dgp_ppl.layer_functions` at inputs that cover a line or a plane.
        names: names of the model's inputs, with their units.
        title: title of the figure.

    Raises:
        ValueError: if there is no layer, or the model has more than two inputs.
    """
    not_empty("hidden_maps", "functions", functions)
    x = next(iter(functions.values())).reached[0]  # the first layer's inputs
    if x.shape[1] > 2:
        raise ValueError(f"hidden_maps: the model has {x.shape[1]} inputs, wanted one or two")
    panels = [(n, p) for n, f in functions.items() for p in range(f.passed.shape[2])]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = figure_of(max(5.5, 4.2 * columns), 3.3 * rows + 0.4, columns, rows)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    order = np.argsort(x[:, 0])
    for axis, (name, p) in zip(axes.flat, panels, strict=False):
        f = functions[name]
        output = _output_label(name, p, f.passed.shape[2])
        mean = f.passed[:, :, p].mean(axis=0)
        if x.shape[1] == 1:
            draws = f.passed[:, order, p]
            _draws(axis, x[order, 0], draws, COLORS[0])
            axis.plot(x[order, 0], mean[order], color=COLORS[0], lw=2, label="mean of the draws")
            axis.set_ylabel(output)
        else:
            contours(figure, axis, x, mean, output, MEAN_COLORS)
            axis.set_ylabel(input_label(names, None, 1, 2))
        axis.set_xlabel(input_label(names, None, 0, x.shape[1]))
    return finish(figure, title, axes)


def _output_label(name: str, p: int, outputs: int) -> str:
    """Label a layer's output: by the layer alone if it has one output."""
    return f"output {p + 1} of {layer_label(name)}" if outputs > 1 else layer_label(name)


def _band(
    axis: Any, x: Any, lower: Any, upper: Any, mean: Any, draws: Any, color: str, label: str
) -> None:
    axis.fill_between(x, lower, upper, color=color, alpha=0.18, linewidth=0, label=label)
    _draws(axis, x, draws, color)
    axis.plot(x, mean, color=color, linewidth=2, label="mean")


def _draws(axis: Any, x: Any, draws: Any, color: str) -> None:
    for i, draw in enumerate(draws):
        axis.plot(x, draw, color=color, alpha=0.5, linewidth=0.7, label=None if i else "draws of f")


def _line_panel(axis: Any, f: LayerFunction, p: int, level: float) -> None:
    order = np.argsort(f.inputs[:, 0])
    x, mean, sd = f.inputs[order, 0], f.mean[order, p], np.sqrt(f.var[order, p])
    half = stats.norm.ppf(0.5 + level / 2)
    draws = f.draws[:8, order, p]
    label = f"{percent(level)} interval of f"
    _band(axis, x, mean - half * sd, mean + half * sd, mean, draws, COLORS[0], label)
    z = f.z[:, 0] if f.z.ndim == 2 else f.z[p, :, 0]
    axis.errorbar(
        z, f.z_mean[:, p], half * f.z_sd[:, p], fmt="o", color=COLORS[1], markersize=4,
        markerfacecolor="white", linewidth=1, label=f"inducing inputs ({percent(level)} interval)",
    )  # fmt: skip
    reached = np.unique(f.reached[:8].ravel())[:: max(1, f.reached[:8].size // 500)]
    axis.plot(
        reached, np.full(len(reached), 0.015), "|", transform=axis.get_xaxis_transform(),
        color="black", alpha=0.4, markersize=6, markeredgewidth=0.6, label="inputs of the layer",
    )  # fmt: skip


def _surface_panels(figure: Any, axes: Any, f: LayerFunction, p: int, output: str) -> None:
    z = f.z if f.z.ndim == 2 else f.z[p]
    for axis, values, colors, label in (
        (axes[0], f.mean[:, p], MEAN_COLORS, f"{output}: mean"),
        (axes[1], np.sqrt(f.var[:, p]), SD_COLORS, f"{output}: standard deviation"),
    ):
        contours(figure, axis, f.inputs, values, label, colors)
        axis.plot(
            *z.T, "o", color="white", markeredgecolor="black", markersize=4, linewidth=0,
            label="inducing inputs",
        )  # fmt: skip


def contours(
    figure: Any, axis: Any, x: np.ndarray, values: np.ndarray, label: str, colors: str
) -> None:
    from matplotlib.ticker import MaxNLocator
    from matplotlib.tri import Triangulation

    # Of inputs in their units, triangles could be too flat.
    spread = np.ptp(x, axis=0)
    scaled = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if np.linalg.matrix_rank(scaled, tol=1e-6) < 2:
        raise ValueError(
            "plots: the inputs of a map lie on a line, wanted points that span a plane; pass a "
            "lattice of inputs"
        )
    # The scale of standard deviations starts at zero: a constant one has one colour.
    most = 1.02 * values.max() or 1.0
    levels = np.linspace(0, most, _CONTOURS) if colors == SD_COLORS else _CONTOURS
    triangles = Triangulation(*scaled.T).triangles
    shown = axis.tricontourf(*x.T, triangles, values, levels, cmap=colors)
    bar = figure.colorbar(shown, ax=axis)
    bar.locator = MaxNLocator(5)
    bar.update_ticks()
    axis.set_title(label, fontsize=10)
    axis.grid(False)
