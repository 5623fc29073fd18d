"""Inverses of triangular matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl.linalg import factorise


@pytest.mark.parametrize("M", [1, 15, 16, 17, 33, 100])
def test_the_inverse_of_the_factor_on_and_off_the_edges_of_its_blocks(x64, M):
    x = np.random.default_rng(M).standard_normal((M, 2))
    K = np.exp(-0.5 * np.square(x[:, None] - x).sum(axis=-1)) + 1e-3 * np.eye(M)
    factor = jax.jit(factorise)(jnp.asarray(K))
    np.testing.assert_allclose(factor.inverse, np.linalg.inv(factor.lower), rtol=1e-9, atol=1e-11)
    assert (np.triu(factor.inverse, 1) == 0).all()
