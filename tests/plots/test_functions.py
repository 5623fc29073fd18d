"""Plots of layers show their functions, inducing inputs and lattices."""

import numpy as np
from support.pictures import layer, legend_words

from dgp_ppl import plots


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
