"""Every plot is legible, has colours that colour-blind readers can tell, and checks arguments."""

import itertools
import sys
from typing import Any

import arviz_base
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from support.helpers import KEY

from dgp_ppl import plots
from dgp_ppl.design import Study, sensitivity
from dgp_ppl.prediction._layer_functions import LayerFunction

RNG = np.random.default_rng(0)
SAFE_COLOURS = {c.lower() for c in plots.COLORS}


def texts(figure):
    """Return the visible texts of a figure, and their boxes in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    parts = [*figure.subfigs, figure]
    found = [p._suptitle for p in parts if getattr(p, "_suptitle", None)]
    found += [t for p in parts for legend in p.legends for t in legend.get_texts()]
    for axes in figure.axes:
        found += axes.texts
        if axes.get_legend():
            found += axes.get_legend().get_texts()
        found.append(axes.title)
        if not axes.axison:
            continue
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-6 * (high - low)
            found.append(axis.label)
            found += [
                t.label1
                for t in axis.get_major_ticks()
                if low - slack <= t.get_loc() <= high + slack and t.label1.get_visible()
            ]
    shown = [t for t in found if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in shown]


def assert_readable(figure):
    """Assert that texts neither overlap nor leave the figure."""
    found = texts(figure)
    assert found
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in found:
        assert min(box.x0, box.y0) > -1, f"{text!r} leaves the figure"
        assert max(box.x1 - width, box.y1 - height) < 1, f"{text!r} leaves the figure"
    for (a, box), (b, other) in itertools.combinations(found, 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        up = min(box.y1, other.y1) - max(box.y0, other.y0)
        assert across < 1 or up < 1, f"{a!r} and {b!r} overlap"


def assert_safe_colours(figure):
    """Assert that lines and markers have colours of Okabe and Ito, or are grey."""
    for axes in figure.axes:
        for line in axes.lines:
            colour = to_hex(line.get_color())
            assert colour in SAFE_COLOURS or np.ptp(to_rgb(colour)) < 1e-9, colour


def legend_words(figure):
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


def layer(inputs, outputs, dim=1, passes=3, rows=9):
    """Return a `LayerFunction` with random values of these shapes."""
    n = RNG.standard_normal
    side = np.linspace(-1, 1, rows)
    grid = np.stack(np.meshgrid(*[side] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    start = np.broadcast_to(grid, (passes, *grid.shape)) if inputs == "x" else n((passes, 81, dim))
    return LayerFunction(
        inputs=grid, mean=n((len(grid), outputs)), var=n((len(grid), outputs)) ** 2 + 0.1,
        draws=n((passes, len(grid), outputs)), z=n((4, dim)), z_mean=n((4, outputs)),
        z_sd=n((4, outputs)) ** 2, reached=start, passed=n((*start.shape[:2], outputs)),
    )  # fmt: skip


def bands(methods, points=30):
    grid = np.linspace(0, 1, points)
    band = {"mean": grid, "lower": grid - 1, "upper": grid + 1, "draws": np.stack([grid, -grid])}
    return grid, dict.fromkeys(methods, band)


Y = RNG.standard_normal(50)
NAMES = ["mean field", "global inducing", "diffusion"]


def states():
    steps = RNG.standard_normal((40, 7, 3, 2))
    steps[:, -1, 1, 0] += 9  # these two move most
    steps[:, -1, 2, 1] += 8
    return {"l1.v": steps, "l2.v": RNG.standard_normal((40, 7, 3, 1))}


def told(bounds, **options):
    """A study whose last run failed."""
    bounds = {n: list(b) if isinstance(b, str) else b for n, b in bounds.items()}
    study = Study(KEY, bounds, **options)
    for i, x in enumerate(study.ask(6)):
        y = np.nan if i == 5 else -x["a"]
        study.tell(x, [y, 1.0] if options else y)
    return study


def test_a_positive_output_is_no_constraint():
    figure = plots.study(told({"a": (0, 1)}, criterion="variance", outputs=2))
    runs, failed = (line.get_xdata() for line in figure.axes[0].lines[:2])
    np.testing.assert_array_equal(runs, np.arange(1, 6))
    np.testing.assert_array_equal(failed, [6])
    assert figure.axes[0].get_ylabel() == "y_1"


FEW = Y[:8]


def tree_of_a_mean(num=2000):
    """Draws of the mean of a few y with noise of sd 1, under a flat prior."""
    rng, size = np.random.default_rng(1), len(FEW)
    mean = FEW.mean() + rng.standard_normal((4, num, 1)) / size**0.5
    drawn, errors = mean + rng.standard_normal((4, num, size)), FEW - mean
    groups = {"posterior": mean[..., 0], "posterior_predictive": drawn}
    groups["log_likelihood"] = -0.5 * (errors**2 + np.log(2 * np.pi))
    groups = {name: {"y": a} for name, a in groups.items()}
    return arviz_base.from_dict(groups | {"observed_data": {"y": FEW}})


def test_predictions_are_given_all_others():
    axis = plots.validation(tree_of_a_mean(), level=0.8).axes[0]
    y, found = np.concatenate([line.get_xydata() for line in axis.lines[1:]]).T
    np.testing.assert_allclose(found, (FEW.sum() - y) / (len(FEW) - 1), atol=0.06)
    (bars,) = axis.collections
    widths = [np.ptp(ends[:, 1]) for ends in bars.get_segments()]
    exact = 2 * 1.2816 * (1 + 1 / (len(FEW) - 1)) ** 0.5
    np.testing.assert_allclose(widths, exact, rtol=0.1)


FIGURES = {
    "training_curves": lambda: plots.training_curves(
        {n: np.linspace(-3, i, 500) for i, n in enumerate(NAMES)}, "A title"
    ),
    "predicted_against_observed": lambda: plots.predicted_against_observed(
        Y, {n: (Y, Y - 1, Y + 1) for n in NAMES}, "strength (MPa)", "A title"
    ),
    "validation": lambda: plots.validation(tree_of_a_mean(), None, "strength (MPa)", "A title"),
    "function_bands": lambda: plots.function_bands(Y, Y, *bands(NAMES), title="A title"),
    "layers of one input": lambda: plots.layers(
        {"l1": layer("x", 2), "l2": layer("h", 1)}, ["temperature (K)"], "A title"
    ),
    "layers of two inputs": lambda: plots.layers(
        {"l1": layer("x", 2, 2), "l2": layer("h", 1, 2)}, title="A title"
    ),
    "hidden_maps of one input": lambda: plots.hidden_maps(
        {"l1": layer("x", 1), "l2": layer("x", 1)}
    ),
    "hidden_maps of two inputs": lambda: plots.hidden_maps(
        {"l1": layer("x", 2, 2), "l2": layer("x", 1, 2)}, ["east (km)", "north (km)"]
    ),
    "maps": lambda: plots.maps(
        (grid := layer("x", 1, 2)).inputs,
        grid.mean[:, 0],
        grid.var[:, 0],
        grid.z,
        ("east (km)", "north (km)", "depth (m)"),
        "A title",
        equal=True,
    ),
    "study of two inputs": lambda: plots.study(told({"a": (0, 1), "kind": "xy", "b": range(9)})),
    "study of one input": lambda: plots.study(told({"a": (0, 1)})),
    "sensitivity": lambda: plots.sensitivity(
        sensitivity(
            KEY, lambda x: np.stack([x[:, 0] - x[:, 1], x[:, 1]]), dict.fromkeys("ab", (0, 1))
        )
    ),
    "diffusion_paths": lambda: plots.diffusion_paths(
        states(), exact={n: a[:, -1] for n, a in states().items()}, title="Paths"
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_apart_and_colours_are_safe(name):
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert_readable(figure)
    assert_safe_colours(figure)


def test_what_does_not_fit_is_said():
    wide = {"l1": layer("x", 1, 3, rows=3)}
    cases: Any = (
        (plots.training_curves, [{}], "elbo_per_datum is empty"),
        (plots.training_curves, [{"a": ["b"]}], r"\['a'\] holds values of type <U1"),
        (plots.training_curves, [{"a": np.ones((2, 2))}], r"\['a'\].*wanted \[any\]"),
        (
            plots.predicted_against_observed,
            [[1.0, 2.0], {"a": ([1.0], [1.0], [1.0])}],
            r"predictions\['a'\].*wanted \[2\]",
        ),
        (plots.validation, [tree_of_a_mean(), "z"], "var_name is 'z', wanted one of"),
        (
            plots.validation,
            [tree_of_a_mean().drop_nodes("observed_data")],
            r"wanted \['observed_data'\] too",
        ),
        (plots.function_bands, [[0.0], [0.0], [0.0], {"a": {}}], r"bands\['a'\] has no \['draws'"),
        (plots.layers, [wide], "3 inputs, wanted one or two"),
        (plots.hidden_maps, [wide], "3 inputs, wanted one or two"),
        (plots.diffusion_paths, [{"l1.v": np.ones(3)}], r"states\['l1.v'\].*S, K\+1, M, P"),
        (plots.maps, [np.eye(3), Y, Y], r"x has shape \(3, 3\), wanted \[any, 2\]"),
        (plots.study, [Study(KEY, {"a": (0, 1)})], "no runs"),
        (plots.study, [told({"a": (0, 1)}), ["b"]], r"inputs is \['b'\], wanted one or two of"),
        (plots.diffusion_paths, [{"v": np.ones((2, 3, 1, 1))}], "wanted two or more"),
        (plots.diffusion_paths, [states(), {"l1.v": np.ones(2)}], r"exact.*wanted \[S, 3, 2\]"),
    )
    for call, given, pattern in cases:
        with pytest.raises((TypeError, ValueError), match=pattern):
            call(*given)


def test_a_missing_matplotlib_is_said_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"wanted matplotlib.*'dgp_ppl\[plots\]'"):
        plots.training_curves({"a": np.ones(9)})


def test_a_layer_of_one_input_shows_its_band_and_inducing_inputs():
    f = layer("x", 2)
    figure = plots.layers({"l1": f, "l2": layer("h", 1)}, ["depth (m)"], level=0.9)
    first, second = figure.axes[:2]
    assert [a.get_ylabel() for a in figure.axes[:3]] == [
        "output 1 of layer 1", "output 2 of layer 1", "layer 2",
    ]  # fmt: skip
    assert (first.get_xlabel(), figure.axes[2].get_xlabel()) == ("depth (m)", "output of layer 1")
    assert not figure.axes[3].axison  # no second output
    corners = second.collections[0].get_paths()[0].vertices
    half = 1.6448536269514722 * np.sqrt(f.var[:, 1])
    for end in (f.mean[:, 1] - half, f.mean[:, 1] + half):
        for point in zip(f.inputs[:, 0], end, strict=True):
            assert np.isclose(corners, point).all(axis=1).any()
    (bars,) = second.containers
    np.testing.assert_allclose(bars.lines[0].get_data(), [f.z[:, 0], f.z_mean[:, 1]])
    low, high = np.moveaxis(np.array([s for s in bars.lines[2][0].get_segments()])[:, :, 1], 1, 0)
    np.testing.assert_allclose(high - low, 2 * 1.6448536269514722 * f.z_sd[:, 1])
    assert set(legend_words(figure)) == {
        "90 % interval of f", "draws of f", "mean", "inducing inputs (90 % interval)",
        "inputs of the layer",
    }  # fmt: skip


def test_a_layer_of_two_inputs_shows_mean_and_spread():
    f = layer("x", 2, 2)
    figure = plots.layers({"l1": f})
    titles = [a.get_title() for a in figure.axes if a.get_title()]
    wanted = [f"output {p} of layer 1: {w}" for p in (1, 2) for w in ("mean", "standard deviation")]
    assert titles == wanted
    for axis in figure.axes[:4]:
        np.testing.assert_allclose(axis.lines[0].get_data(), f.z.T)


def test_a_map_spans_any_units():
    """A share and unix seconds; a standard deviation of 0 is one colour."""
    lattice = np.stack(np.meshgrid([0.0, 1.0, 2.0], 1.6e9 + np.arange(3) * 1e7), axis=-1)
    figure = plots.maps(lattice.reshape(-1, 2), np.arange(9.0), np.zeros(9))
    assert figure.axes[0].get_ylim() == (1.6e9, 1.62e9)


def test_hidden_maps_are_means_over_passes():
    first = layer("x", 1)
    figure = plots.hidden_maps({"l1": first, "l2": layer("x", 1)}, ["x"])
    axis = figure.axes[0]
    np.testing.assert_allclose(axis.lines[-1].get_ydata(), first.passed[:, :, 0].mean(axis=0))
    assert len(axis.lines) == len(first.passed) + 1
    assert [a.get_ylabel() for a in figure.axes] == ["layer 1", "layer 2"]


def test_chains_are_shown_at_first_and_last():
    """They are shown in the plane of the two values that move most, with the exact draws."""
    moves = states()
    exact = {n: RNG.standard_normal((2, 30, *a.shape[2:])) for n, a in moves.items()}
    figure = plots.diffusion_paths(moves, exact=exact)
    panels = figure.axes[:4]
    assert [a.get_title() for a in panels] == [
        "step 0 of 6 (noise)", "step 2 of 6", "step 4 of 6", "step 6 of 6 (posterior)",
    ]  # fmt: skip
    assert panels[0].get_xlabel() == "layer 1: v[1, 0]"
    assert panels[0].get_ylabel() == "layer 1: v[2, 1]"
    last = moves["l1.v"][:, -1]
    np.testing.assert_allclose(panels[3].lines[1].get_data(), [last[:, 1, 0], last[:, 2, 1]])
    both = exact["l1.v"].reshape(60, 3, 2)
    np.testing.assert_allclose(panels[0].lines[0].get_data(), [both[:, 1, 0], both[:, 2, 1]])
    median = figure.axes[4].lines[12].get_ydata()
    np.testing.assert_allclose(median, np.median(moves["l1.v"][:, :, 1, 0], axis=0))


def test_training_curves_are_running_means():
    """The window is 1 % of the steps. With more methods than colours, line styles differ."""
    curves = {f"method {i}": RNG.standard_normal(300) + i for i in range(9)}
    figure = plots.training_curves(curves, units="bits")
    (axis,) = figure.axes
    assert legend_words(figure) == list(curves)
    assert "bits" in axis.get_ylabel()
    assert axis.get_xlabel() == "step"
    for line, values in zip(axis.lines, curves.values(), strict=True):
        steps, smooth = line.get_data()
        wanted = [values[k - 3 : k].mean() for k in steps]
        np.testing.assert_allclose(smooth, wanted)
    assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 9
