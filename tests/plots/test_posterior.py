"""Plots of posteriors by arviz-plots have a mark or curve for every method."""

import numpy as np
import pytest
from support.pictures import legend_words, posteriors

from dgp_ppl import plots


def test_pyplot_keeps_no_figure():
    """arviz-plots creates its figures with pyplot."""
    from matplotlib import pyplot

    plots.posterior_rank(posteriors())
    assert pyplot.get_fignums() == []


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


@pytest.mark.slow
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
