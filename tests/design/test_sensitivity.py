"""Sobol indices and main effects, against their analytic values."""

import numpy as np
import pytest
from support.helpers import KEY

from dgp_ppl.design import sensitivity

BOX = {n: (-np.pi, np.pi) for n in "abc"}


def ishigami(x):
    a, b, c = x.T
    return np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a)


def test_indices_and_main_effects_of_ishigami():
    """Of two draws, of which the second has another scale, and no c."""
    found = sensitivity(
        KEY, lambda x: np.stack([ishigami(x), 2 * x[:, 0]]), BOX, num=4096, pairs=True
    )
    np.testing.assert_allclose(found.first[:, 0], [0.3139, 0.4424, 0.0], atol=0.01)
    np.testing.assert_allclose(found.total[:, 0], [0.5576, 0.4424, 0.2437], atol=0.01)
    np.testing.assert_allclose(found.closed[0, [1, 2], 0], [0.7563, 0.5576], atol=0.01)
    np.testing.assert_allclose(np.diagonal(found.closed).T, found.first)
    np.testing.assert_allclose(found.first[:, 1], [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose([found.mean[0], found.var[0]], [3.5, 13.845], rtol=0.01)
    exact = 3.5 + 7 * (np.sin(found.levels[1]) ** 2 - 0.5)
    np.testing.assert_allclose(found.effects[1, :, 0], exact, atol=0.1)


def test_indices_of_the_g_function():
    weights = np.array([0.0, 1.0, 4.5])
    g = lambda x: np.prod((np.abs(4 * x - 2) + weights) / (1 + weights), axis=1)  # noqa: E731
    part = 1 / (3 * (1 + weights) ** 2)
    whole = np.prod(1 + part) - 1
    found = sensitivity(KEY, g, {n: (0, 1) for n in "abc"}, num=4096)
    np.testing.assert_allclose(found.first[:, 0], part / whole, atol=0.01)
    total = part * np.prod(1 + part) / (1 + part) / whole
    np.testing.assert_allclose(found.total[:, 0], total, atol=0.01)
    assert found.closed is None


@pytest.mark.parametrize(
    ("function", "bounds", "options", "text"),
    [
        (ishigami, BOX, {"num": 500}, "num is 500, wanted a power of two"),
        (ishigami, {"a": (1, 1)}, {}, r"wanted \(low, high\) by name"),
        (lambda x: x, BOX, {"num": 8}, r"shape \(8, 3\) for 8 inputs, wanted \[8\]"),
        (lambda x: x[:, 0] * np.nan, BOX, {"num": 8}, "NaN or infinity"),
        (lambda x: 0 * x[:, 0], BOX, {"num": 8}, "does not vary"),
    ],
)
def test_what_is_wrong_is_named(function, bounds, options, text):
    with pytest.raises(ValueError, match=text):
        sensitivity(KEY, function, bounds, **options)
