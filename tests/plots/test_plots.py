"""Plots show the values that they are given, with legible labels."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.pictures import (
    NAMES,
    RECORDS,
    RNG,
    Y,
    assert_readable,
    assert_safe_colours,
    bands,
    coverage,
    layer,
    legend_words,
    posteriors,
    record,
    states,
)

from dgp_ppl import plots

FIGURES = {
    "training_curves": lambda: plots.training_curves(
        {n: np.linspace(-3, i, 500) for i, n in enumerate(NAMES)}, "A title"
    ),
    "predicted_against_observed": lambda: plots.predicted_against_observed(
        Y, {n: (Y, Y - 1, Y + 1) for n in NAMES}, "strength (MPa)", "A title"
    ),
    "coverage_curves": coverage,
    "pit_histograms": lambda: plots.pit_histograms(dict.fromkeys(NAMES, RNG.uniform(size=90))),
    "reliability": lambda: plots.reliability(
        RNG.integers(0, 3, 60), dict.fromkeys(NAMES[:2], RNG.dirichlet([1, 1, 1], 60)), "Classes"
    ),
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
    "hidden_lattice": lambda: plots.hidden_lattice(
        {"l1": layer("x", 2, 2), "l2": layer("x", 1, 2)}, (9, 9), title="A lattice"
    ),
    "posterior_forest": lambda: plots.posterior_forest(posteriors(), title="Inducing values"),
    "posterior_pair": lambda: plots.posterior_pair(posteriors(), values=2, title="Pairs"),
    "posterior_rank": lambda: plots.posterior_rank(posteriors(), values=3, title="Ranks"),
    "diffusion_paths": lambda: plots.diffusion_paths(
        states(), exact={n: a[:, -1] for n, a in states().items()}, title="Paths"
    ),
    "metric_dots": lambda: plots.metric_dots(RECORDS, title="Metrics"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_apart_and_colours_are_safe(name):
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert_readable(figure)
    assert_safe_colours(figure)


def test_overlapping_text_is_found():
    """This checks the check itself."""
    figure = Figure()
    for at in (0.5, 0.51):
        figure.subplots().text(at, 0.5, "words")
    with pytest.raises(AssertionError, match="overlap"):
        assert_readable(figure)


def test_pyplot_keeps_no_figure():
    """arviz-plots creates its figures with pyplot."""
    from matplotlib import pyplot

    plots.posterior_rank(posteriors())
    assert pyplot.get_fignums() == []


@pytest.mark.slow
def test_no_other_plot_imports_pyplot():
    code = """
import io, sys, numpy as np
from dgp_ppl import plots
plots.training_curves({"a": np.ones(9)}).savefig(io.BytesIO())
assert "matplotlib.pyplot" not in sys.modules and "arviz_plots" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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


def test_coverage_is_the_share_inside_by_hand():
    y = np.array([-2.0, -0.5, 0.0, 0.3, 5.0])
    lower = np.array([[-0.4] * 5, [-0.5] * 5])  # an end belongs to the interval
    upper = np.array([[0.1] * 5, [4.0, 4.0, 4.0, 4.0, 6.0]])
    figure = plots.coverage_curves(y, [0.3, 0.8], {"a": (lower, upper)})
    (axis,) = figure.axes
    np.testing.assert_allclose(axis.lines[-1].get_data(), [[0.3, 0.8], [1 / 5, 4 / 5]])
    assert "5 targets" in axis.get_ylabel()
    assert legend_words(figure) == ["95 % band if calibrated", "a"]


def test_the_grey_band_of_coverage_has_calibrated_methods():
    """It holds 95 % of repetitions at a level, or more, within five standard errors."""
    (axis,) = coverage().axes
    outline = axis.collections[0].get_paths()[0].vertices
    at = outline[np.isclose(outline[:, 0], 0.5)][:, 1]
    shares = np.random.default_rng(1).binomial(50, 0.5, 4000) / 50
    inside = ((shares >= at.min() - 1e-9) & (shares <= at.max() + 1e-9)).mean()
    assert 0.95 - 5 * np.sqrt(0.95 * 0.05 / 4000) < inside < 0.98


def test_pit_histograms_are_shares_of_bins():
    figure = plots.pit_histograms({"a": [0.05, 0.15, 0.15, 0.95], "b": [0.5, 0.5]}, bins=10)
    heights = [[p.get_height() for p in axis.containers[0]] for axis in figure.axes]
    wanted = np.zeros((2, 10))
    wanted[0, [0, 1, 9]], wanted[1, 5] = [0.25, 0.5, 0.25], 1
    np.testing.assert_allclose(heights, wanted)
    assert [a.get_title() for a in figure.axes] == ["a", "b"]


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


def test_hidden_maps_are_means_over_passes():
    first = layer("x", 1)
    figure = plots.hidden_maps({"l1": first, "l2": layer("x", 1)}, ["x"])
    axis = figure.axes[0]
    np.testing.assert_allclose(axis.lines[-1].get_ydata(), first.passed[:, :, 0].mean(axis=0))
    assert len(axis.lines) == len(first.passed) + 1
    assert [a.get_ylabel() for a in figure.axes] == ["layer 1", "layer 2"]


def test_a_lattice_keeps_its_lines():
    f = layer("x", 2, 2)
    figure = plots.hidden_lattice({"l1": f}, (9, 9))
    before, after = figure.axes
    assert len(before.lines) == len(after.lines) == 18
    lattice = f.passed.mean(axis=0).reshape(9, 9, 2)
    np.testing.assert_allclose(after.lines[2].get_data(), lattice[2].T)
    np.testing.assert_allclose(after.lines[9 + 4].get_data(), lattice[:, 4].T)
    assert legend_words(figure) == ["constant input 1", "constant input 2"]


def test_the_forest_has_a_row_for_each_value_and_a_mark_for_each_method():
    trees = posteriors()
    figure = plots.posterior_forest(trees, [("l1.v", 2, 1), ("l2.v", 4, 0)], level=0.8)
    names, axis = figure.axes
    assert [t.get_text() for t in names.texts] == ["layer 1: v[2, 1]", "layer 2: v[4]"]
    assert "80 %" in axis.get_xlabel()
    assert legend_words(figure) == list(trees)
    marks = [c.get_offsets()[0, 0] for c in axis.collections if len(c.get_offsets()) == 1]
    draws = [np.asarray(t["posterior"][s])[:, :, m, p] for s, m, p in
             (("l1.v", 2, 1), ("l2.v", 4, 0)) for t in trees.values()]  # fmt: skip
    np.testing.assert_allclose(sorted(marks), sorted(np.median(d) for d in draws), rtol=1e-6)


def test_a_pair_plot_has_a_panel_for_each_pair_and_a_density_for_each_value():
    figure = plots.posterior_pair(posteriors(), values=1)
    labels = [(a.get_xlabel(), a.get_ylabel()) for a in figure.axes if a.axison]
    assert ("layer 1: v[0, 0]", "layer 2: v[0]") in labels
    assert [y for _, y in labels].count("density") == 2
    assert legend_words(figure) == ["NUTS", "mean field", "diffusion"]


def test_ranks_of_a_narrow_law_leave_the_band():
    """The ranks of equal distributions do not."""
    figure = plots.posterior_rank(posteriors(draws=300), values=2)
    assert [a.get_title() for a in figure.axes] == [
        "layer 1: v[0, 0]", "layer 1: v[4, 1]", "layer 2: v[0]", "layer 2: v[4]",
    ]  # fmt: skip
    for axis in figure.axes:
        far = {line.get_color().lower(): np.abs(line.get_ydata()).max() for line in axis.lines}
        nuts, narrow, other = (far[c.lower()] for c in plots.COLORS[:3])
        assert narrow > 1.3 * max(nuts, other)


def test_draws_by_site_do_for_a_tree():
    trees = posteriors()
    draws = {m: {n: np.asarray(a) for n, a in t["posterior"].items()} for m, t in trees.items()}
    marks = [
        [c.get_offsets()[0, 0] for c in plots.posterior_forest(p, 2).axes[1].collections
         if len(c.get_offsets()) == 1]
        for p in (trees, draws)
    ]  # fmt: skip
    np.testing.assert_allclose(*marks)


def test_chains_are_shown_at_first_and_last():
    """They are shown in the plane of the two values that move most, with the exact draws."""
    moves = states()
    exact = {n: RNG.standard_normal((2, 30, *a.shape[2:])) for n, a in moves.items()}
    figure = plots.diffusion_paths(moves, exact=exact, snapshots=3)
    panels = figure.axes[:3]
    assert [a.get_title() for a in panels] == [
        "step 0 of 6 (noise)", "step 3 of 6", "step 6 of 6 (posterior)",
    ]  # fmt: skip
    assert panels[0].get_xlabel() == "layer 1: v[1, 0]"
    assert panels[0].get_ylabel() == "layer 1: v[2, 1]"
    last = moves["l1.v"][:, -1]
    np.testing.assert_allclose(panels[2].lines[1].get_data(), [last[:, 1, 0], last[:, 2, 1]])
    both = exact["l1.v"].reshape(60, 3, 2)
    np.testing.assert_allclose(panels[0].lines[0].get_data(), [both[:, 1, 0], both[:, 2, 1]])
    median = figure.axes[3].lines[12].get_ydata()
    np.testing.assert_allclose(median, np.median(moves["l1.v"][:, :, 1, 0], axis=0))


def test_dots_are_at_means_with_standard_errors():
    """Records of one data set share a panel, and labels contain the depth."""
    figure = plots.metric_dots(RECORDS)
    panels = [a for a in figure.axes if a.axison]
    assert len(panels) == 4  # two data sets, two metrics
    assert [a.get_title() for a in panels[:2]] == [
        "energy\nN = 1,000, D = 8", "step\nN = 1,000, D = 8",
    ]  # fmt: skip
    rows = [t.get_text() for t in panels[0].get_yticklabels()]
    assert rows == ["linear", "DSVI, 2 layers", "DSVI, 3 layers", "SGHMC, 2 layers"]
    dots = {tuple(np.ravel(c.lines[0].get_data())): c for c in panels[0].containers}
    assert sorted(dots) == [(0.45, 2), (0.5, 1), (3.0, 0)]
    (segment,) = dots[(0.5, 1)].lines[2][0].get_segments()
    np.testing.assert_allclose(segment[:, 0], [0.48, 0.52])
    assert not dots[(0.45, 2)].lines[2]  # one split: no standard error
    assert "RMSE" in panels[0].get_xlabel()
    assert "nats" in panels[2].get_xlabel()
    families = ["baseline", "deep GP, variational", "deep GP, sampled"]
    assert legend_words(figure) == [*families, "standard error over splits"]


def test_many_data_sets_go_below():
    records = [record(f"data {i}", [("dsvi", 1.0, 0.1, 0.0, 0.1)]) for i in range(5)]
    figure = plots.metric_dots(records, metrics=("rmse",), columns=2)
    assert sum(a.axison for a in figure.axes) == 5
    assert_readable(figure)


WRONG = {
    "elbo_per_datum is empty": lambda: plots.training_curves({}),
    r"elbo_per_datum\['a'\] has shape \(2, 2\), wanted \[any\]": lambda: plots.training_curves(
        {"a": np.ones((2, 2))}
    ),
    r"levels are \[1.5\], wanted numbers between 0 and 1": lambda: plots.coverage_curves(
        [1.0], [1.5], {"a": ([[0.0]], [[1.0]])}
    ),
    r"intervals\['a'\] has shape \(2, 1, 1\), wanted \[2, 2, 1\]": lambda: plots.coverage_curves(
        [1.0], [0.5, 0.9], {"a": ([[0.0]], [[1.0]])}
    ),
    r"pit\['a'\] is from 2 to 2, wanted values between 0 and 1": lambda: plots.pit_histograms(
        {"a": [2.0]}
    ),
    r"predictions\['a'\] has shape \(1,\), wanted \[2\]": lambda: plots.predicted_against_observed(
        [1.0, 2.0], {"a": ([1.0], [1.0], [1.0])}
    ),
    r"functions\['l1'\] has 3 inputs, wanted one or two": lambda: plots.layers(
        {"l1": layer("x", 1, 3, rows=3)}
    ),
    r"the model has 3 inputs, wanted one or two": lambda: plots.hidden_maps(
        {"l1": layer("x", 1, 3, rows=3)}
    ),
    r"shape is \(4, 4\), .* wanted a lattice of two inputs": lambda: plots.hidden_lattice(
        {"l1": layer("x", 2, 2)}, (4, 4)
    ),
    r"outputs of the layers are \{'l1': 1\}, wanted two": lambda: plots.hidden_lattice(
        {"l1": layer("x", 1, 2)}, (9, 9)
    ),
    r"values names l9.v\[0, 0\], and posteriors\['NUTS'\] has no such site": lambda: (
        plots.posterior_forest(posteriors(), [("l9.v", 0, 0)])
    ),
    r"posteriors\['NUTS'\] has it of shape \[5, 1\]": lambda: plots.posterior_pair(
        posteriors(), [("l2.v", 5, 0)]
    ),
    r"values are .* wanted two or more": lambda: plots.posterior_pair(
        posteriors(), [("l2.v", 1, 0)]
    ),
    r"posteriors has \['NUTS'\] only, wanted two or more": lambda: plots.posterior_rank(
        posteriors(["NUTS"])
    ),
    r"posteriors\['a'\] is ndarray, wanted an ArviZ data tree": lambda: plots.posterior_forest(
        {"a": np.ones(3)}
    ),
    r"states\['l1.v'\] has shape \(3,\), wanted \[S, K \+ 1, M, P\]": lambda: (
        plots.diffusion_paths({"l1.v": np.ones(3)})
    ),
    r"exact\['l1.v'\] has shape \(2, 2\), wanted \[S, 3, 2\]": lambda: plots.diffusion_paths(
        states(), exact={"l1.v": np.ones((2, 2))}
    ),
    r"snapshots is 1, wanted at least 2": lambda: plots.diffusion_paths(states(), snapshots=1),
    r"metrics has 'auc', wanted one of log_density, rmse": lambda: plots.metric_dots(
        RECORDS, ["auc"]
    ),
    r"'linear' on uci/energy twice": lambda: plots.metric_dots([RECORDS[0], RECORDS[0]]),
}  # fmt: skip


@pytest.mark.parametrize("wanted", WRONG)
def test_what_does_not_fit_is_said(wanted):
    with pytest.raises(ValueError, match=wanted):
        WRONG[wanted]()
