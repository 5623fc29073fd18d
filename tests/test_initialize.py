"""Initial inducing inputs, mean functions and lengthscales."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KEY, compiled

from dgp_ppl import DataError, Rows, initialize, kernels, means, models
from dgp_ppl.initialize import inducing_inputs

X = np.random.default_rng(0).normal(size=(60, 3))


def test_centroids_of_separate_clusters():
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    x = np.repeat(centres, 15, axis=0) + 0.01 * np.random.default_rng(1).normal(size=(60, 2))
    z = np.asarray(inducing_inputs(KEY, x, 4))
    order = np.lexsort(np.round(z).T[::-1])
    expected = centres[np.lexsort(centres.T[::-1])]
    np.testing.assert_allclose(z[order], expected, atol=0.02)


def test_all_distinct_rows_are_taken_where_there_are_no_more():
    for x, num in ((X, 60), (X, 75), (X[:1], 5), (np.repeat(X[:4], 20, axis=0), 6)):
        z = np.asarray(inducing_inputs(KEY, x, num))
        assert z.shape == (num, 3)
        for row in np.float32(x):
            assert (np.abs(z - row).max(axis=1) < 1e-6).any()
        assert len(np.unique(z, axis=0)) == num
        assert np.isfinite(z).all()


def test_a_constant_column_stays_constant():
    x = X.copy()
    x[:, 1] = 7.0
    np.testing.assert_allclose(inducing_inputs(KEY, x, 9)[:, 1], 7.0, rtol=1e-6)


def test_large_sets_are_thinned():
    x = np.random.default_rng(2).normal(size=(25_000, 1))
    z = np.asarray(inducing_inputs(KEY, x, 3))[:, 0]
    # The best three points for a standard normal: 0 and ±1.22 (Max 1960).
    np.testing.assert_allclose(np.sort(z), [-1.22, 0.0, 1.22], atol=0.1)


@pytest.mark.parametrize(
    ("width", "expected"), [(2, means.Linear), (5, means.Linear), (3, None), (None, None)]
)
def test_deep_gp_pushes_the_inducing_inputs_through_the_means(width, expected):
    x = jnp.asarray(X, float)
    start = initialize.deep_gp(KEY, x, num_inducing=8, depth=3, width=width)
    hidden = width or 3
    assert [z.shape for z in start["z"]] == [(8, 3), (8, hidden), (8, hidden)]
    first, second, last = start["mean"]
    assert last is means.zero
    assert second is means.identity
    assert first is means.identity if expected is None else type(first) is expected
    np.testing.assert_array_equal(start["z"][0], inducing_inputs(KEY, x, 8))
    np.testing.assert_allclose(start["z"][1], first(start["z"][0]), rtol=1e-6)
    np.testing.assert_array_equal(start["z"][1], start["z"][2])


def test_the_mean_of_a_narrow_layer_is_pca_and_of_a_wide_one_padding():
    x = jnp.asarray(X * [3.0, 2.0, 1.0], float)
    narrow = initialize.deep_gp(KEY, x, num_inducing=4, width=2)["mean"][0]
    np.testing.assert_allclose(narrow(x), means.pca(x, 2)(x), rtol=1e-5)
    wide = initialize.deep_gp(KEY, x, num_inducing=4, width=5)["mean"][0]
    np.testing.assert_array_equal(wide(x), np.pad(x, [(0, 0), (0, 2)]))


def test_starts_from_rows_use_a_sample():
    """With few rows all rows are used; with many, k-means and PCA see a sample."""
    rows = Rows.from_arrays(X.astype(np.float32), X[:, 0])
    wanted = inducing_inputs(KEY, X.astype(np.float32), 8)
    np.testing.assert_allclose(inducing_inputs(KEY, rows, 8), wanted, rtol=1e-5)
    x = np.random.default_rng(0).normal(size=(50_000, 3)) * [3.0, 2.0, 1.0]
    start = initialize.deep_gp(KEY, Rows.from_arrays(x), num_inducing=4, width=2)
    assert [z.shape for z in start["z"]] == [(4, 3), (4, 2)]
    wanted = np.abs(means.pca(jnp.asarray(x, float), 2)(jnp.eye(3)))
    np.testing.assert_allclose(np.abs(start["mean"][0](jnp.eye(3))), wanted, atol=0.05)
    with pytest.raises(DataError, match="x is NaN or infinite"):
        initialize.deep_gp(KEY, Rows.from_arrays(np.full((5, 2), np.nan)))


def test_shorter_lengthscales_of_any_model(caplog):
    """Sums have several, kernels by name have them at the end of a name, other params are left."""

    def kernel(name, dim):
        smooth = kernels.SquaredExponential.learned(f"{name}.smooth", dim, lengthscale=3.0)
        return smooth + kernels.Matern12.learned(f"{name}.rough", dim)

    x = jnp.asarray(X, float)
    found = initialize.shorter_lengthscales(models.svgp, x, factor=0.5, z=x[:4], kernel=kernel)
    assert sorted(found) == ["l1.rough.lengthscale", "l1.smooth.lengthscale"]
    np.testing.assert_allclose(found["l1.smooth.lengthscale"], [1.5] * 3)
    np.testing.assert_allclose(found["l1.rough.lengthscale"], [3**0.5 / 2] * 3, rtol=1e-6)
    fixed = kernels.Matern12(1.0, 1.0)
    options = {"z": x[:4], "kernel": lambda name, dim: fixed}
    assert initialize.shorter_lengthscales(models.svgp, x, X[:, 0], **options) == {}
    rows = Rows.from_arrays(X.astype(np.float32), X[:, 0])
    for source in (rows, X.tolist()):
        again = initialize.shorter_lengthscales(models.svgp, source, z=x[:4])
        np.testing.assert_allclose(again["l1.lengthscale"], [3**0.5 / 4] * 3, rtol=1e-6)
    again = partial(initialize.shorter_lengthscales, models.svgp, X[:1], z=x[5:9])
    assert "jit(_lengthscales)" not in compiled(caplog, again)  # of other values
    with pytest.raises(ValueError, match="factor is '2'"):
        initialize.shorter_lengthscales(models.svgp, x, factor="2", z=x[:4])
    with pytest.raises(ValueError, match="factor is 0"):
        initialize.shorter_lengthscales(models.svgp, x, factor=0, z=x[:4])
