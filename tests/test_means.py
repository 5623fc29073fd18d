"""Mean functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl import means

X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)) * [3.0, 2.0, 1.0], float)


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


def test_a_mean_may_broadcast_to_the_outputs():
    for mean in (lambda x: jnp.ones(2), lambda x: jnp.ones((1, 2)), lambda x: x[:, :1]):
        means.check_mean("gp", mean, 6, 3, 2)
    for mean, cure in (
        (lambda x: 1.0, r"full\(\(len\(x\), 1\), m\)"), (5.0, r"lambda x: jnp\.full"),
        (lambda x: x[:, 0], r"try lambda x: m\(x\)\[:, None\]"),
        (lambda x: x, r"means\.pad\(3, 2\)"), (lambda x: jnp.ones((5, 2)), r"means\.pad"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"gp: mean (gives|fails).*wanted \(6, 2\).*{cure}"):
            means.check_mean("gp", mean, 6, 3, 2)
