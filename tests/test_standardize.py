"""`Standardizer`: statistics, constant columns, large shifts, wrong shapes."""

import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl import Standardizer

X = np.random.default_rng(0).normal(size=(60, 3))


def test_standardizer_uses_training_statistics_alone():
    y = X[:, 0] * 7 + 3
    scaler = Standardizer.fit(X[:40], y[:40])
    expected = (X[40:] - X[:40].mean(axis=0)) / X[:40].std(axis=0)
    np.testing.assert_allclose(scaler.inputs(X[40:]), expected, rtol=1e-5, atol=1e-6)
    expected = (y[40:] - y[:40].mean()) / y[:40].std()
    np.testing.assert_allclose(scaler.outputs(y[40:]), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaler.original(scaler.outputs(y)), y, rtol=1e-5)
    assert scaler.inputs(X).dtype == scaler.outputs(y).dtype == jnp.float32


def test_constant_columns_become_zero():
    x = np.column_stack([X[:, 0], np.full(60, 3.0), np.full(60, 1e6 + 0.1), np.zeros(60)])
    scaler = Standardizer.fit(x, np.full(60, 5.0))
    np.testing.assert_array_equal(scaler.x_scale[1:], 1.0)
    assert scaler.y_scale == 1.0
    np.testing.assert_allclose(np.asarray(scaler.inputs(x))[:, 1:], 0.0, atol=1e-6)


def test_a_large_shift_costs_no_digits():
    """The arithmetic is in float64 until the data have unit scale."""
    shifted = Standardizer.fit(X + 1e6, X[:, 0] - 1e6)
    plain = Standardizer.fit(X, X[:, 0])
    np.testing.assert_allclose(shifted.inputs(X + 1e6), plain.inputs(X), atol=1e-6)
    np.testing.assert_allclose(shifted.outputs(X[:, 0] - 1e6), plain.outputs(X[:, 0]), atol=1e-6)


def test_without_targets_outputs_stay():
    scaler = Standardizer.fit(X)
    assert (scaler.y_loc, scaler.y_scale) == (0.0, 1.0)


def test_shapes_for_the_standardizer():
    with pytest.raises(ValueError, match=r"fit: x has shape \(60,\), wanted \[N, D\]"):
        Standardizer.fit(X[:, 0])
    with pytest.raises(ValueError, match=r"fit: y has shape \(60, 1\).*pass y\[:, 0\]"):
        Standardizer.fit(X, X[:, :1])
    with pytest.raises(ValueError, match=r"inputs: x has shape \(60, 2\), wanted \[N, 3\]"):
        Standardizer.fit(X).inputs(X[:, :2])


def test_several_targets_have_a_scale_each():
    y = np.array([[1.0, 100.0], [3.0, 300.0], [np.nan, 500.0]])
    scaler = Standardizer.fit(X[:3], y)
    np.testing.assert_allclose(scaler.y_loc, [2, 300])
    np.testing.assert_allclose(scaler.y_scale, [1, y[:, 1].std()])
    np.testing.assert_allclose(scaler.original(scaler.outputs(y)), y, rtol=1e-6)
    with pytest.raises(ValueError, match="NaN in all rows"):
        Standardizer.fit(X[:3], np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match=r"y has shape \(2, 2\).*\[N, P\]"):
        Standardizer.fit(X[:3], y[:2])


def test_some_columns_stay_as_they_are():
    scaler = Standardizer.fit(X, unscaled=[2, 0])
    np.testing.assert_array_equal(scaler.inputs(X)[:, [0, 2]], X[:, [0, 2]].astype(np.float32))
    assert np.asarray(scaler.inputs(X))[:, 1].std() == pytest.approx(1.0, rel=1e-5)
    for wrong in ([3], [-1]):
        with pytest.raises(ValueError, match=r"unscaled is \[.*\], wanted positions .* below 3"):
            Standardizer.fit(X, unscaled=wrong)
