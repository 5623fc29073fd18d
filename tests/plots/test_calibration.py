"""Coverage and PIT plots show the fractions that they are given."""

import numpy as np
from support.pictures import coverage, legend_words

from dgp_ppl import plots


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
