"""Inverses of triangular matrices, and factors of batches of matrices."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_derivatives

from dgp_ppl.linalg._triangular import triangular_inverse


def lower(seed, size):
    """A well-conditioned matrix with large entries above the diagonal, which do not count."""
    draws = np.random.default_rng(seed).standard_normal((size, size))
    return jnp.asarray(draws / size + np.triu(draws, 1) + 2 * np.eye(size), float)


@pytest.mark.usefixtures("x64")
def test_the_inverse_on_and_off_the_edges_of_its_blocks():
    """Of one matrix and of several; entries above the diagonal are ignored."""
    for size in (1, 32, 33, 130):
        matrices = jnp.stack([lower(seed, size) for seed in range(3)])
        found = jax.jit(jax.vmap(triangular_inverse))(matrices)
        np.testing.assert_allclose(found, np.linalg.inv(np.tril(matrices)), rtol=1e-10, atol=1e-12)
    one = triangular_inverse(matrices[1])
    np.testing.assert_allclose(one, found[1], rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("x64")
def test_derivatives_of_the_inverse():
    assert_derivatives(lambda L: jnp.sum(jnp.sin(triangular_inverse(L))), lower(0, 5))
    gradient = jax.jit(jax.grad(lambda L: jnp.sum(triangular_inverse(L))))(lower(1, 4))
    assert (np.triu(gradient, 1) == 0).all()


MANY = textwrap.dedent("""
    import os
    import jax, jax.numpy as jnp
    from jax import random
    from dgp_ppl.linalg._triangular import cholesky, triangular_inverse

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    x = random.normal(random.key(0), (8, 50, 64, 64))
    K = x @ jnp.swapaxes(x, -1, -2) + jnp.eye(64)

    @jax.jit
    def total(K):
        factors = [jax.vmap(cholesky)(a) for a in K]
        return sum(jax.vmap(triangular_inverse)(L).sum() for L in factors)

    for _ in range(100):
        total(K).block_until_ready()
""")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a set of two cores")
def test_many_batches_do_not_wait_for_each_other():
    """In jaxlib 0.10, two batched LAPACK calls in one program wait for each other on two cores."""
    subprocess.run([sys.executable, "-c", MANY], check=True, timeout=120)
