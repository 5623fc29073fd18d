"""`SplineCoupling`: a bijection with an exact inverse and volume that starts at the identity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from support.helpers import KEY, slow

from dgp_ppl.inference.guides.flow._bijections import SplineCoupling, bijection_params


def shaken(bijection, scale=0.1):
    """Return the bijection with noise on its arrays; at first it is the identity."""
    arrays, static = eqx.partition(bijection, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = random.split(random.key(5), len(leaves))
    noisy = [a + scale * random.normal(k, a.shape) for a, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, noisy), static)


def numbers(size, seed=0):
    """Return numbers within the splines' interval, on its edge, and outside of it."""
    x = random.normal(random.key(seed), (size,))
    return x.at[:3].set(jnp.array([4.0, -5.5, 6.0]))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", [slow(2), 7])
def test_its_inverse_and_its_volume(size):
    """Compare with the dense Jacobian."""
    bijection = shaken(SplineCoupling(size, KEY, layers=8, width=8, bins=5))
    x = numbers(size) if size > 2 else jnp.array([0.3, -1.2])
    y, log_det = bijection.transform_and_log_det(x)
    assert jnp.abs(y - x).max() > 0.1
    jacobian = jax.jacfwd(lambda x: bijection.transform_and_log_det(x)[0])(x)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-9, atol=1e-9)
    assert (jnp.abs(jacobian) > 1e-12).all()  # each number depends on all
    back, minus_log_det = bijection.inverse_and_log_det(y)
    np.testing.assert_allclose(back, x, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(minus_log_det, -log_det, rtol=1e-8)


def test_gradients_are_finite_everywhere():
    def both_ways(bijection, x):
        y, log_det = bijection.transform_and_log_det(x)
        back, inverse = bijection.inverse_and_log_det(jax.lax.stop_gradient(y) + 0.1)
        return jnp.sum(jnp.sin(y)) + log_det + jnp.sum(jnp.cos(back)) + inverse

    bijection = shaken(SplineCoupling(4, KEY, layers=2, width=4, bins=3), 3.0)
    many = jnp.stack([numbers(4, seed) for seed in range(200)])
    arrays, static = eqx.partition(bijection, eqx.is_array)
    value = lambda arrays, x: both_ways(eqx.combine(arrays, static), x)  # noqa: E731
    grads = jax.jit(jax.vmap(jax.grad(value, (0, 1)), (None, 0)))(arrays, many)
    assert all(jnp.isfinite(g).all() for g in jax.tree.leaves(grads))


class Scaled:
    """A bijection with an array that JAX does not see."""

    def __init__(self):
        self.scale = jnp.ones(4)

    def transform_and_log_det(self, x):
        return self.scale * x, jnp.sum(jnp.log(self.scale))


def test_errors():
    declare = handlers.seed(bijection_params, KEY)
    for error, message, call in (
        (ValueError, "SplineCoupling: size is 1", lambda: SplineCoupling(1, KEY)),
        (ValueError, "layers is 0", lambda: SplineCoupling(4, KEY, layers=0)),
        (ValueError, "interval is -1.0, wanted", lambda: SplineCoupling(4, KEY, interval=-1.0)),
        (TypeError, "flow is a Scaled, which is no PyTree.*equinox.Module",
         lambda: declare(Scaled(), 4, "flow")),
        (TypeError, "the value of flow is a tuple, wanted a bijection",
         lambda: declare(lambda size, key: (jnp.zeros(size),), 4, "flow")),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


@pytest.mark.slow
def test_flowjax(x64):
    """Its bijections have the same two methods; masks and permutations are not learned."""
    flowjax = pytest.importorskip("flowjax.flows")
    from flowjax.distributions import Normal

    made = flowjax.coupling_flow(KEY, base_dist=Normal(jnp.zeros(4)), flow_layers=2, invert=False)
    with handlers.trace() as trace, handlers.seed(rng_seed=0):
        bijection = bijection_params(made.bijection, 4, "flow")
    assert trace

    def maker(size, key):
        base = Normal(jnp.zeros(size))
        return flowjax.coupling_flow(key, base_dist=base, flow_layers=2, invert=False).bijection

    with pytest.raises(TypeError, match="pass what the function makes"):
        handlers.seed(bijection_params, KEY)(maker, 4, "flow")
    assert all(jnp.issubdtype(s["value"].dtype, jnp.floating) for s in trace.values())
    x = jnp.array([0.3, -1.0, 2.0, 0.1])
    y, log_det = bijection.transform_and_log_det(x)
    jacobian = jax.jacfwd(lambda x: bijection.transform_and_log_det(x)[0])(x)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-6)
    np.testing.assert_allclose(y, made.bijection.transform(x))
