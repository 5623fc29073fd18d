"""Training curves are running means."""

import numpy as np
from support.pictures import RNG, legend_words

from dgp_ppl import plots


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
