"""Paths of a diffusion guide at their first and last steps."""

import numpy as np
from support.pictures import RNG, states

from dgp_ppl import plots


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
