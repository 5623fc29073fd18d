"""Weighted squares, stored gradients, deviations and cosines."""

from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from support.lowered import use_gpu_branches

from dgp_ppl.linalg import _products, weighted_squares


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("A_shape", "outputs", "at_once"),
    [((4, 5), 3, 9), ((4, 5), 3, 2), ((4, 5), 20, 1), ((3, 4, 5), 3, 9), ((4, 5), 3, None)],
)
def test_weighted_squares_and_their_derivatives(monkeypatch, A_shape, outputs, at_once):
    """Compare with the plain formula: all at once, in groups, with one A each, and as on a GPU."""
    if at_once is None:
        use_gpu_branches(monkeypatch)
    else:
        monkeypatch.setattr(_products, "_GROUP", at_once * 4 * 5)
    rng = np.random.default_rng(7)
    A, R = jnp.asarray(rng.standard_normal(A_shape)), rng.standard_normal((outputs, 4, 4))
    R, weight = jnp.asarray(np.tril(R)), rng.standard_normal((outputs, 5))

    def plain(A, R):
        A = jnp.broadcast_to(A, (outputs, 4, 5))
        return jnp.einsum("pmn,pmk,pjk,pjn->pn", A, R, R, A)

    @partial(jax.jit, static_argnums=0)
    def everything(function, A, R):
        weighed = lambda A, R: jnp.sum(weight * function(A, R))  # noqa: E731
        tangent = jax.jvp(function, (A, R), (2 * A, R))[1]
        return function(A, R), jax.grad(weighed, (0, 1))(A, R), tangent

    for got, wanted in zip(
        jax.tree.leaves(everything(weighted_squares, A, R)),
        jax.tree.leaves(everything(plain, A, R)),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-12)


def test_a_stored_gradient_is_the_gradient():
    """In both modes, and under vmap."""
    x = jax.random.normal(jax.random.key(0), (3, 5, 4))
    f = lambda x: jnp.sum(jnp.sin(x) * x)  # noqa: E731
    stored = lambda x: f(_products.stored_gradient(x))  # noqa: E731
    np.testing.assert_array_equal(_products.stored_gradient(x[0]), x[0])
    for mode in (jax.grad, jax.jacfwd):
        found, wanted = (jax.vmap(mode(g))(x) for g in (stored, f))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    backward = str(jax.make_jaxpr(jax.grad(lambda x: f(_products.stored_gradient(x))))(x[0]))
    assert "dot_general" in backward  # XLA does not fuse it
    assert "dot_general" not in str(jax.make_jaxpr(jax.grad(f))(x[0]))


def test_the_deviation_has_a_finite_gradient_at_zero():
    var = jnp.array([0.0, 1e-30, 0.25, 4.0])
    np.testing.assert_allclose(_products.deviation(var), jnp.sqrt(var))
    slope = jax.grad(lambda s: _products.deviation(s * var).sum())(1.0)
    np.testing.assert_allclose(slope, 0.5 * jnp.sqrt(var).sum(), rtol=1e-6)


def test_the_gradient_of_a_diagonal_is_a_mask():
    A = jax.random.normal(jax.random.key(1), (3, 4, 4))
    own = lambda A: jnp.sum(jnp.sin(_products.diagonal(A)))  # noqa: E731
    stock = lambda A: jnp.sum(jnp.sin(jnp.diagonal(A, axis1=-2, axis2=-1)))  # noqa: E731
    np.testing.assert_array_equal(_products.diagonal(A), jnp.diagonal(A, axis1=-2, axis2=-1))
    for transform in (jax.grad, jax.jacfwd, jax.hessian):
        np.testing.assert_array_equal(transform(own)(A), transform(stock)(A))
    program = jax.jit(jax.grad(own)).lower(A).as_text()
    assert "scatter" not in program
    assert "scatter" in jax.jit(jax.grad(stock)).lower(A).as_text()


def test_shapes_in_signatures_are_checked():
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'R'"):
        weighted_squares(jnp.ones((3, 5)), jnp.ones((2, 4, 4)))


def test_cosine_and_its_derivative():
    angle = np.linspace(-60, 60, 5001, dtype=np.float32)
    off = _products.cosine(jnp.asarray(angle)) - np.cos(angle, dtype=np.float64)
    slope = jax.vmap(jax.grad(_products.cosine))(jnp.asarray(angle))
    for error in (off, slope + np.sin(angle, dtype=np.float64)):
        assert (np.abs(error) < 1.2e-7 * (1 + np.abs(angle))).all()
    with jax.enable_x64(True):
        assert _products.cosine(jnp.asarray(angle)).dtype == np.float32
