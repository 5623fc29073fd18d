"""`Standardizer`: statistics, constant columns, large shifts, wrong shapes."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import compiled

from dgp_ppl import DataError, Rows, Standardizer

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
    assert not Standardizer.fit(X).scales_targets


def test_constant_columns_become_zero():
    x = np.column_stack([X[:, 0], np.full(60, 3.0), np.full(60, 1e6 + 0.1), np.zeros(60)])
    scaler = Standardizer.fit(x, np.full(60, 5.0))
    np.testing.assert_array_equal(scaler.x_scale[1:], 1.0)
    assert scaler.y_scale == 1.0
    np.testing.assert_allclose(np.asarray(scaler.inputs(x))[:, 1:], 0.0, atol=1e-6)


def test_a_small_spread_about_a_large_mean_is_no_constant():
    """Seconds of a clock, read by the tenth, in columns that 1e-10 of the mean would call equal."""
    scaler = Standardizer.fit(1.7e9 + np.linspace(0, 0.4, 9)[:, None], 1.7e9 + np.arange(9) * 1e-3)
    assert scaler.x_scale == pytest.approx(0.4 / np.sqrt(9.6), rel=1e-4)
    assert scaler.y_scale == pytest.approx(1e-3 * np.sqrt(80 / 12), rel=1e-3)
    steps = np.diff(np.arange(0, 50, 0.1))  # 0.1 but for rounding
    assert Standardizer.fit(steps[:, None]).x_scale == 1.0


def test_spreads_whose_squares_are_zero():
    found = Standardizer.fit(X, 1e-170 * X[:, 0])
    np.testing.assert_allclose(found.y_scale, 1e-170 * X[:, 0].std(), rtol=1e-12)


def test_a_large_shift_costs_no_digits():
    """The arithmetic is in float64 until the data have unit scale."""
    shifted = Standardizer.fit(X + 1e6, X[:, 0] - 1e6)
    plain = Standardizer.fit(X, X[:, 0])
    np.testing.assert_allclose(shifted.inputs(X + 1e6), plain.inputs(X), atol=1e-6)
    np.testing.assert_allclose(shifted.outputs(X[:, 0] - 1e6), plain.outputs(X[:, 0]), atol=1e-6)


def test_several_targets_have_a_scale_each():
    y = np.array([[1.0, 100.0], [3.0, 300.0], [np.nan, 500.0]])
    scaler = Standardizer.fit(X[:3], y)
    np.testing.assert_allclose(scaler.y_loc, [2, 300])
    np.testing.assert_allclose(scaler.y_scale, [1, y[:, 1].std()])
    np.testing.assert_allclose(scaler.original(scaler.outputs(y)), y, rtol=1e-6)


def test_some_columns_stay_as_they_are():
    for data in (X, Rows.from_arrays(X)):
        scaler = Standardizer.fit(data, unscaled=[2, 0])
        np.testing.assert_array_equal(scaler.inputs(X)[:, [0, 2]], X[:, [0, 2]].astype(np.float32))
        assert np.asarray(scaler.inputs(X))[:, 1].std() == pytest.approx(1.0, rel=1e-5)
        shared = Standardizer.fit(data, shared=True, unscaled=[2])
        np.testing.assert_allclose(shared.x_loc, [X[:, :2].mean()] * 2 + [0.0], rtol=1e-9)
        np.testing.assert_allclose(shared.x_scale, [X[:, :2].std()] * 2 + [1.0], rtol=1e-9)


def test_rows_are_standardised_in_one_pass(monkeypatch):
    """The moments equal the moments of arrays, also with a shift, constants, missing targets."""
    x = np.c_[X * [1.0, 20.0, 0.1] + 1e4, np.full(60, 3.0)]
    y = np.c_[X[:, 0] * 7 + 3, X[:, 1]]
    y[5, 0] = np.nan
    rows = Rows.from_arrays(x, y)
    monkeypatch.setattr("dgp_ppl.datasets.rows._rows._BLOCK_ROWS", 7)
    for shared in (False, True):
        found, wanted = Standardizer.fit(rows, shared=shared), Standardizer.fit(x, y, shared=shared)
        for name in ("x_loc", "x_scale", "y_loc", "y_scale"):
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-9)
    scaler = Standardizer.fit(rows)
    inputs, outputs = scaler.rows(rows).take(np.arange(60))
    assert inputs.dtype == outputs.dtype == np.float32
    np.testing.assert_allclose(inputs, scaler.inputs(x), rtol=1e-6)
    np.testing.assert_allclose(outputs, scaler.outputs(y), rtol=1e-6)


def test_targets_of_rows_without_a_scale():
    rows = Rows.from_arrays(X, np.arange(60), np.ones(60))
    scaler = Standardizer.fit(rows, targets=False)
    assert not scaler.scales_targets
    _, y, ones = scaler.rows(rows).take([7])
    assert (y.item(), y.dtype, ones) == (7, np.int64, 1)
    single = Standardizer.fit(Rows.from_arrays(X, X[:, 0]))
    assert isinstance(single.y_loc, float)
    assert not Standardizer.fit(Rows.from_arrays(X)).scales_targets


def test_errors():
    """Of arrays and of sources alike."""
    x, y = X.copy(), X[:, 0].copy()
    x[41, 1], y[17] = np.nan, np.inf
    nothing, rows = np.full(60, np.nan), Rows.from_arrays
    for error, message, call in (
        (ValueError, r"x has rows of shape \(\), wanted one row \[D\]", lambda: (rows(y),)),
        (ValueError, r"y has shape \(60, 1\).*pass y\[:, 0\]", lambda: (X, X[:, :1])),
        (ValueError, r"rows.map\(lambda x, y:", lambda: (rows(X, X[:, :1]),)),
        (ValueError, r"x has 60 rows and y has shape \(2,\)", lambda: (X, y[:2])),
        (ValueError, "x is Rows, whose second array is y; leave y out", lambda: (rows(X), y)),
        (ValueError, "a target of y is NaN in all rows", lambda: (rows(X, nothing),)),
        (DataError, r"column 1 of x: nan in row 41 \(from 0\) is missing", lambda: (rows(x),)),
        (DataError, r"target 'y': inf in row 17 \(from 0\) is infinite", lambda: (rows(X, y),)),
        (DataError, "inf in row 17", lambda: (rows(X, y.astype(np.float32)),)),
        (DataError, "column 0 of x: .*e.199 in row 0", lambda: (rows(X * 1e200),)),
    ):
        with pytest.raises(error, match=message):
            Standardizer.fit(*call())
    for data in (X, rows(X)):
        for wrong in ([3], [-1]):
            with pytest.raises(ValueError, match=r"unscaled is \[.*\], wanted .* below 3"):
                Standardizer.fit(data, unscaled=wrong)
    with pytest.raises(ValueError, match=r"inputs: x has shape \(60, 2\), wanted \[N, 3\]"):
        Standardizer.fit(X).inputs(X[:, :2])


def test_other_numbers_of_rows_compile_nothing(caplog):
    scaler = Standardizer.fit(X, X[:, 0])
    assert compiled(caplog, lambda: (scaler.inputs(X[:17]), scaler.outputs(X[:17, 0]))) == []
