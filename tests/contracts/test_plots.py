"""Every plot is legible, uses colours that are safe for colour-blind readers, and
checks its arguments.
"""

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
    posteriors,
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
}  # fmt: skip  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_apart_and_colours_are_safe(name):
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert_readable(figure)
    assert_safe_colours(figure)


def test_overlapping_text_is_found():
    """Test `assert_readable` itself."""
    figure = Figure()
    for at in (0.5, 0.51):
        figure.subplots().text(at, 0.5, "words")
    with pytest.raises(AssertionError, match="overlap"):
        assert_readable(figure)


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
}  # fmt: skip  # fmt: skip


@pytest.mark.parametrize("wanted", WRONG)
def test_what_does_not_fit_is_said(wanted):
    with pytest.raises(ValueError, match=wanted):
        WRONG[wanted]()
