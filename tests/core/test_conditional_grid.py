"""Layers with a `Grid` of inducing inputs, against layers with the same inputs without it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax import random
from numpyro import handlers
from support.helpers import KEY, assert_covariance

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.core._inducing import FullInducing
from dgp_ppl.linalg import default_jitter

PLACES, TIMES = np.random.default_rng(0).uniform(-2, 2, (4, 2)), np.array([0.0, 1.0, 2.5])
KERNEL = kernels.Separable(
    kernels.Matern32(1.3, jnp.array([0.9, 1.4])), kernels.SquaredExponential(1.0, 1.2)
)
X = np.random.default_rng(1).uniform(-2, 2, (6, 3))
V = np.random.default_rng(2).standard_normal((12, 2))


def layer(z, v=V):
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f.v": jnp.asarray(v, float)}):
        return dgp.gp("f", KERNEL, z, out=2)


def pair():
    """Return a layer on a grid, and one with the same inducing inputs."""
    grid = dgp.Grid(jnp.asarray(PLACES), jnp.asarray(TIMES))
    return layer(grid), layer(grid.points)


@pytest.mark.usefixtures("x64")
def test_it_is_the_dense_layer():
    """Given v or q(v), moments agree up to jitter, which the grid adds to each part."""
    tril = np.tril(np.random.default_rng(3).standard_normal((2, 12, 12)))

    @jax.jit
    def moments():
        layers, q = pair(), FullInducing(jnp.asarray(V), jnp.asarray(tril), validate_args=False)
        grid, z = layers[0], layers[0].sparse.z
        factor = grid.sparse.factor.lower, grid.sparse.factor.inverse, KERNEL(z, z), grid.jitter
        given_v = [f.joint(X) for f in layers]
        return factor, given_v, [f.sparse.marginals(q, jnp.asarray(X)) for f in layers]

    (L, inverse, gram, jitter), given_v, given_q = moments()
    np.testing.assert_allclose(L @ L.T, gram, atol=1e-5)
    np.testing.assert_allclose(inverse @ L, np.eye(12), atol=1e-8)
    np.testing.assert_allclose(np.diag(L @ L.T - gram), jitter, rtol=1e-3)
    for (grid, dense), atol in ((given_v, 2e-4), (given_q, 1e-3)):
        for a, b in zip(grid, dense, strict=True):
            np.testing.assert_allclose(a, b, atol=atol)


def test_the_jitter_of_a_grid_keeps_its_digits_in_float32():
    """Both parts have a jitter j times their variance, so the product has (2 j + j²) times it."""
    j = default_jitter(np.float32)
    jitter = jax.jit(lambda: pair()[0].jitter)()
    np.testing.assert_allclose(jitter, 1.3 * (2 * j + j**2), rtol=1e-5)


@pytest.mark.slow
def test_paths_have_its_distribution():
    """Draws of functions have the mean and covariance of `joint`."""
    f = layer(dgp.Grid(jnp.asarray(PLACES, float), jnp.asarray(TIMES, float)))
    x = jnp.asarray(X[:3], float)
    draws = jax.vmap(lambda k: f.path(k, 300)(x)[:, 0])(random.split(KEY, 3000))
    mean, cov = f.joint(x)
    assert_covariance(draws, cov[0])
    np.testing.assert_allclose(draws.mean(axis=0), mean[:, 0], atol=0.1)


def test_a_guide_counts_the_inputs_of_learned_places():
    def model(x):
        dgp.gp("f", KERNEL, dgp.Grid(numpyro.param("z", jnp.asarray(PLACES)), TIMES))(x)

    guide = dgp.MeanField(model)
    guide.setup(X)
    assert guide.layers["f.v"].inputs == 3


def test_wrong_shapes_and_parts():
    with pytest.raises(ValueError, match=r"Grid: z and times have shapes \(2, 2\) and \(3, 1\)"):
        dgp.Grid(np.zeros((2, 2)), np.zeros((3, 1)))
    per_output = kernels.PerOutput(kernels.Matern32(jnp.ones(2), jnp.ones((2, 1))))
    kernel = kernels.Separable(per_output, kernels.Matern32(1.0, 1.0))
    with handlers.seed(rng_seed=0), pytest.raises(TypeError, match="one kernel for all outputs"):
        dgp.gp("f", kernel, dgp.Grid([[0.0, 1.0]], [0.0, 1.0]), out=2)
    with handlers.seed(rng_seed=0), pytest.raises(TypeError, match=r"wanted kernels\.Separable"):
        dgp.gp("f", kernels.Matern32(1.0, 1.0), dgp.Grid(jnp.zeros((2, 2)), jnp.arange(3.0)))
