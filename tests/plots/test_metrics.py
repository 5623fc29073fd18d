"""Metrics of methods, by data set."""

import numpy as np
from support.pictures import RECORDS, assert_readable, legend_words, record

from dgp_ppl import plots


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
