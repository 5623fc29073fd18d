"""Every plot is legible, uses colours that are safe for colour-blind readers, and
checks its arguments.
"""

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.pictures import (
    NAMES,
    Y,
    assert_readable,
    assert_safe_colours,
    bands,
    layer,
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


def test_overlapping_text_is_found():
    """Test `assert_readable` itself."""
    figure = Figure()
    for at in (0.5, 0.51):
        figure.subplots().text(at, 0.5, "words")
    with pytest.raises(AssertionError, match="overlap"):
        assert_readable(figure)


WRONG = [
    (lambda: plots.training_curves({}), "elbo_per_datum is empty"),
    (lambda: plots.training_curves({"a": np.ones((2, 2))}), r"\['a'\].*wanted \[any\]"),
    (
        lambda: plots.predicted_against_observed([1.0, 2.0], {"a": ([1.0], [1.0], [1.0])}),
        r"predictions\['a'\].*wanted \[2\]",
    ),
    (lambda: plots.layers({"l1": layer("x", 1, 3, rows=3)}), "3 inputs, wanted one or two"),
    (lambda: plots.hidden_maps({"l1": layer("x", 1, 3, rows=3)}), "3 inputs, wanted one or two"),
    (lambda: plots.diffusion_paths({"l1.v": np.ones(3)}), r"states\['l1.v'\].*S, K \+ 1, M, P"),
    (
        lambda: plots.diffusion_paths(states(), exact={"l1.v": np.ones((2, 2))}),
        r"exact\['l1.v'\].*wanted \[S, 3, 2\]",
    ),
    (lambda: plots.diffusion_paths(states(), snapshots=1), "snapshots is 1, wanted at least 2"),
]


def test_what_does_not_fit_is_said():
    for call, pattern in WRONG:
        with pytest.raises(ValueError, match=pattern):
            call()


def test_a_missing_matplotlib_is_said_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"wanted matplotlib.*'dgp_ppl\[plots\]'"):
        plots.training_curves({"a": np.ones(9)})
