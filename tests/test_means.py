"""Mean functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl import means

X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)) * [3.0, 2.0, 1.0], float)


def test_zero_and_identity():
    assert (means.zero(X) == jnp.zeros((6, 1))).all()
    assert means.identity(X) is X


def test_linear_is_a_product():
    weight = np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(means.linear(weight)(X), np.asarray(X) @ weight, rtol=1e-5)


def test_the_weight_is_never_trained_and_the_input_is():
    weight = jnp.ones((3, 2))
    by_weight, by_x = jax.grad(lambda w, x: means.linear(w)(x).sum(), (0, 1))(weight, X)
    assert (by_weight == 0).all()
    assert (by_x == 2).all()


def test_pad_widens_with_zeros_and_drops_columns_over():
    np.testing.assert_array_equal(means.pad(3, 5)(X), np.pad(X, [(0, 0), (0, 2)]))
    np.testing.assert_array_equal(means.pad(3, 2)(X), X[:, :2])


def test_pca_keeps_the_most_of_any_projection():
    """The projection of x keeps its largest singular values."""
    mapped = np.asarray(means.pca(X, 2)(X))
    values = np.linalg.svd(X, compute_uv=False)
    np.testing.assert_allclose(mapped.T @ mapped, np.diag(values[:2] ** 2), rtol=1e-4, atol=1e-4)


def test_pca_cannot_widen():
    with pytest.raises(ValueError, match=r"no 4 singular vectors; use means\.pad"):
        means.pca(X, 4)


def test_linear_wants_a_matrix():
    with pytest.raises(ValueError, match=r"shape \(3,\), wanted \[D, P\]"):
        means.linear(np.ones(3))
