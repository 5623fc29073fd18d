"""Values of the kernels of inner products."""

import jax.numpy as jnp
import numpy as np

from dgp_ppl import kernels


def test_linear_is_the_inner_product_of_scaled_inputs(x64):
    x, z = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0], [0.0, 4.0]])
    kernel = kernels.Linear(2.0, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(kernel(x, z), [[2 * (3 - 0.5), 2 * 2.0]])
    np.testing.assert_allclose(kernel(x), [2 * (1 + 1.0)])


def test_arc_cosine_at_angles_where_it_is_known(x64):
    """k is |x̃||z̃| at angle 0, |x̃||z̃| / π at a right angle, and 0 at angle π (Cho & Saul)."""
    kernel = kernels.ArcCosine(1.0, 1.0, 0.0)
    x, z = np.array([[2.0, 0.0]]), np.array([[3.0, 0.0], [0.0, 3.0], [-3.0, 0.0]])
    np.testing.assert_allclose(kernel(x, z), [[6.0, 6 / np.pi, 0.0]], atol=1e-6)
    np.testing.assert_allclose(kernel(x), [4.0])
