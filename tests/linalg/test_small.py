import itertools

import jax
import jax.numpy as jnp
import numpy as np

from dgp_ppl.linalg._small import MOST_ROWS, small_cholesky, small_inverse


def positive(size, condition=1e3):
    rng = np.random.default_rng(size)
    vectors = np.linalg.qr(rng.standard_normal((size, size)))[0]
    return (vectors * np.geomspace(1, 1 / condition, size)) @ vectors.T


def test_the_factor_and_its_inverse_are_the_librarys_within_rounding(x64):
    """Of one matrix and of several; entries above the diagonal do not count."""
    for size, dtype in itertools.product((1, 2, 3, MOST_ROWS), (np.float32, np.float64)):
        K, eps = positive(size).astype(dtype), np.finfo(dtype).eps
        noisy = K + np.triu(np.ones((size, size), dtype), 1)
        L = np.linalg.cholesky(K)
        found = jax.jit(small_cholesky)(noisy)
        assert found.dtype == dtype
        found = np.asarray(found)  # whose products have no lower precision on a GPU
        np.testing.assert_allclose(found @ found.T, K, atol=10 * eps)
        np.testing.assert_allclose(found, L, rtol=1e4 * eps, atol=1e3 * eps)
        assert (np.triu(found, 1) == 0).all()
        inverse = np.asarray(jax.jit(small_inverse)(L))
        tolerance = 1e2 * eps * np.abs(inverse).max()
        np.testing.assert_allclose(inverse @ L, np.eye(size), atol=tolerance)
        assert (np.triu(inverse, 1) == 0).all()
        many = jax.jit(jax.vmap(small_cholesky))(jnp.stack([noisy, 4 * noisy]))
        np.testing.assert_allclose(many, [found, 2 * found], rtol=1e2 * eps, atol=1e2 * eps)


def test_without_a_factor_the_result_is_nan():
    """As in JAX, except that a pivot of zero is no factor either."""
    indefinite = [[1.0, 2.0], [2.0, 1.0]]
    for K in (indefinite, np.diag([-1.0, 1.0]), np.diag([0.0, 1.0]), np.diag([1.0, np.nan])):
        assert np.isnan(jax.jit(small_cholesky)(jnp.asarray(K))).all()
