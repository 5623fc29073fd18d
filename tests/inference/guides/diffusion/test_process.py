import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.tree_util import Partial
from support.helpers import KEY, assert_mean
from support.linear_gaussian import RISING

from dgp_ppl.inference.guides.diffusion._process import (
    Process,
    VariancePreserving,
    simulate_path,
    simulate_process,
)


@pytest.mark.parametrize("steps", [1, 7])
def test_steps_of_the_reference(steps):
    """They integrate dx = -b / 2 x dt + sqrt(b) dB, b linear in time, and keep N(0, I)."""
    process = Process.build(VariancePreserving(0.1, 20.0), steps)
    np.testing.assert_allclose(np.prod(process.carry), np.exp(-0.25 * 20.1), rtol=1e-12)
    np.testing.assert_allclose(process.carry**2 + process.variance, 1.0, rtol=1e-12)
    fine = Process.build(VariancePreserving(0.1, 20.0), 5 * steps)
    whole = np.prod(fine.carry.reshape(steps, 5), axis=1)
    np.testing.assert_allclose(process.carry, whole, rtol=1e-12)


def test_states_of_a_path():
    """Paths start at N(0, I), and each step has the mean and variance of its definition."""
    process = Process.build(RISING, 4)
    eta = jnp.asarray(np.random.default_rng(0).uniform(0.2, 1, (4, 3)))
    control = Partial(lambda k, x: jnp.sin(x + k))
    states = simulate_path(KEY, process, control, eta)
    x, _, _ = simulate_process(KEY, process, control, eta)
    np.testing.assert_allclose(states[-1], x, rtol=1e-6)
    many = jax.vmap(lambda k: simulate_path(k, process, control, eta))(random.split(KEY, 4000))
    assert_mean(many[:, 0], 0.0)
    assert_mean(jnp.square(many[:, 0]), 1.0)
    for i, k in enumerate((3, 2, 1)):
        before, after = np.asarray(many[:, i]), np.asarray(many[:, i + 1])
        residual = after - process.carry[k] * before - process.gain[k] * np.sin(before + k)
        assert_mean(residual, 0.0)
        assert_mean(np.square(residual), eta[k])


@pytest.mark.parametrize("known", [False, True])
def test_derivatives_are_those_of_a_loop_in_python(known, x64):
    """In the control's params and in the variances; what is given counts as a constant."""
    process = Process.build(VariancePreserving(3.0, 3.0), 4)
    weights = 0.5 * random.normal(KEY, (3, 5))
    given = (lambda x: jnp.sin(x)) if known else None

    def control(weights, k, x, *values):
        u = weights @ jnp.tanh(weights.T @ x) + k
        return u * (1 + values[0]) if values else u

    def by_scan(weights, eta):
        process_control = Partial(control, weights)
        x, mean, cost = simulate_process(KEY, process, process_control, eta, given=given)
        return jnp.sum(jnp.sin(x) + jnp.square(mean)) + cost

    def by_hand(weights, eta):
        x = simulate_path(KEY, process, Partial(control, weights), eta, given=given)[0]
        x, cost, key = jax.lax.stop_gradient(x), 0.0, random.split(KEY)[0]
        for k in reversed(range(4)):
            values = () if given is None else (jax.lax.stop_gradient(given(x)),)
            u = process.gain[k] * control(weights, k, x, *values)
            before, x = x, process.carry[k] * x + u
            if k > 0:
                ratio = eta[k] / process.variance[k]
                squares = jnp.square(u) / process.variance[k]
                cost += 0.5 * jnp.sum(ratio + squares - 1 - jnp.log(ratio))
                x += jnp.sqrt(eta[k]) * random.normal(random.fold_in(key, k), (3,))
        return jnp.sum(jnp.sin(before) + jnp.square(x)) + cost

    eta = jnp.asarray(np.random.default_rng(0).uniform(0.2, 1, (4, 3)))
    found, wanted = (jax.jit(jax.grad(f, (0, 1)))(weights, eta) for f in (by_scan, by_hand))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_rates_are_positive_and_leave_some_of_the_state():
    for low, high in ((-5.0, -5.0), (0.0, 1.0), (0.1, float("nan"))):
        with pytest.raises(ValueError, match=r"schedule is .*, wanted positive rates"):
            VariancePreserving(low, high)
    with pytest.raises(ValueError, match=r"schedule is .*, wanted lower rates"):
        Process.build(VariancePreserving(high=1e5), 4)


def test_memory_does_not_grow_with_the_steps():
    """The backward pass keeps the control's intermediates of one step only."""
    H, width = 4, 4096

    def memory(steps):
        process = Process.build(RISING, steps)
        eta = jnp.ones((steps, H))

        def cost(weights):
            control = Partial(lambda w, k, x: jnp.tanh(w @ x) @ w, weights)
            return simulate_process(KEY, process, control, eta)[2]

        compiled = jax.jit(jax.grad(cost)).lower(jnp.ones((width, H))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # Without the checkpoint 56 more steps would keep 2 x 56 x 4096 numbers.
    assert memory(64) - memory(8) < 56 * width
