"""Partial evaluation of programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.helpers import slow

from dgp_ppl.linalg import factorise
from dgp_ppl.persistence._folding import Folded

K = jnp.array([[2.0, 0.5], [0.5, 1.0]])
X = jnp.array([0.3, -1.0])


def solve(x):
    return {"mean": factorise(K).inverse @ x, "known": jnp.sum(K)}


def nested(x):
    scale = jax.jit(lambda a, b: jax.nn.relu(a) * jnp.linalg.cholesky(b)[0, 0])(x, K)
    return lax.scan(lambda c, a: (c + a * scale, c), jnp.zeros(2), jnp.linalg.inv(K))


@jax.custom_jvp
def custom(x, y):
    return jnp.exp(y) * x


custom.defjvps(lambda t, _, x, y: jnp.exp(y) * t, lambda t, _, x, y: jnp.exp(y) * x * t)


def others(x):
    def grow(state):
        return state[0] + 1, state[1] * 1.5 + x

    looped = lax.while_loop(lambda s: s[0] < 3, grow, (0, jnp.linalg.det(K) * jnp.ones(2)))
    return custom(x, K[0]), looped[1], jax.checkpoint(jnp.sin)(x), x, 2.0


@pytest.mark.parametrize("function", [solve, slow(nested), others])
def test_values_stay_the_same(function):
    folded = Folded(function, jnp.zeros(2))
    for run in (folded, jax.jit(folded)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), run(X), function(X))
    many = jax.vmap(folded)(jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(jax.tree.leaves(many)[0][1], jax.tree.leaves(function(2 * X))[0])


def operations(program):
    return str(jax.make_jaxpr(program)(X))


def test_factors_become_constants():
    assert "cholesky" in operations(solve)
    assert "cholesky" in operations(nested)
    for function in (solve, nested):
        found = operations(Folded(function, X))
        assert "cholesky" not in found
        assert "while" not in found


def test_a_constant_is_kept_once():
    twice = Folded(lambda x: (lambda a: a @ x + a @ (2 * x))(jnp.exp(K)), X)
    assert [c.shape for c in twice.constants] == [(2, 2)]


def test_several_arguments():
    folded = Folded(lambda x, n: jnp.linalg.det(K) * x + n, X, jnp.zeros(()))
    np.testing.assert_allclose(folded(X, 2.0), jnp.linalg.det(K) * X + 2, rtol=1e-6)
