"""Walks and their derivatives, in the forms for CPUs and for other devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.tree_util import Partial
from support.helpers import KEY

from dgp_ppl.inference.guides.diffusion._walk import Steps, walk_at_once, walk_by_loop

K, H = 4, 3


def control(params, k, x, *values):
    """A nonlinear function with params that steps share, params of a step, and a known part."""
    weights, offsets = params
    u = weights @ jnp.tanh(weights.T @ x) + offsets[k]
    return u * (1 + values[0]) if values else u


def given(x):
    return jax.lax.stop_gradient(jnp.sin(x))


def inputs():
    keys = random.split(KEY, 6)
    params = 0.5 * random.normal(keys[0], (H, 5)), random.normal(keys[1], (K, H))
    a, c = random.uniform(keys[2], (2, K), minval=0.5)
    return params, random.normal(keys[3], (H,)), a, c, random.normal(keys[4], (K, H))


def outcomes(form, known, params, x, a, c, e):
    """Return all that a form of the walk returns, as one vector."""
    found = form(known, Partial(control, params), x, Steps(jnp.arange(K), a, c, e))
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(found)])


def by_hand(known, params, x, a, c, e):
    """Walk in a loop of Python, whose derivative is JAX's."""
    rows = []
    for k in reversed(range(K)):
        values = () if known is None else (known(x),)
        u = control(params, k, x, *values)
        x = a[k] * x + c[k] * u + e[k]
        rows.insert(0, (x, u, *values))
    return jnp.concatenate([jnp.ravel(jnp.stack(part)) for part in zip(*rows, strict=True)])


@pytest.mark.parametrize("known", [None, given])
@pytest.mark.parametrize("form", [walk_by_loop, walk_at_once])
def test_values_and_derivatives(form, known, x64):
    """In reverse and forward mode, and of second order; none of the coefficients."""
    params, x, a, c, e = inputs()
    weights = random.normal(random.key(1), by_hand(known, params, x, a, c, e).shape)
    found = lambda params, x, e: jnp.sum(  # noqa: E731
        weights * jnp.square(outcomes(form, known, params, x, a, c, e))
    )
    wanted = lambda params, x, e: jnp.sum(  # noqa: E731
        weights * jnp.square(by_hand(known, params, x, a, c, e))
    )
    at, along = (params, x, e), jax.tree.map(lambda a: jnp.cos(7 * a), (params, x, e))
    slope = lambda f: lambda *at: jax.jvp(f, at, along)[1]  # noqa: E731
    for change in (
        lambda f: f,
        lambda f: jax.grad(f, argnums=(0, 1, 2)),
        slope,
        lambda f: jax.grad(slope(f), argnums=(0, 1, 2)),
    ):
        one, other = (jax.jit(change(f))(*at) for f in (found, wanted))
        for b, truth in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(b, truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", [walk_by_loop, walk_at_once])
def test_several_walks_at_once(form, x64):
    """Also where the params, or what the given function knows, differ between walks."""
    params, x, a, c, e = inputs()
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.7 * leaf]), params)

    def loss(params, x, shift):
        known = lambda x: jax.lax.stop_gradient(jnp.sin(x + shift))  # noqa: E731
        return jnp.sum(jnp.square(outcomes(form, known, params, x, a, c, e)))

    gradient = jax.grad(loss, argnums=(0, 1))
    shifts = jnp.array([0.1, 0.9])
    found = jax.jit(jax.vmap(gradient, (0, None, 0)))(many, x, shifts)
    for i in range(2):
        one = jax.jit(gradient)(jax.tree.map(lambda leaf: leaf[i], many), x, shifts[i])  # noqa: B023
        for b, truth in zip(jax.tree.leaves(found), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(b[i], truth, rtol=1e-9)


def test_weights_are_not_copied_for_each_step():
    """The loop backward off CPUs reads what steps share, and slices only what is of a step."""
    params, x, a, c, e = inputs()
    loss = lambda params: jnp.sum(outcomes(walk_at_once, None, params, x, a, c, e))  # noqa: E731
    program = str(jax.make_jaxpr(jax.grad(loss))(params))
    assert f"[{K},{H},5]" not in program
    assert f"[{K},5,{H}]" not in program
