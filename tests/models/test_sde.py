"""Convergence of the integrators on an equation whose solution is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dgp_ppl.models._sde import integrate

FINE, POINTS, GROWTH, SPREAD = 256, 40_000, 0.5, 0.7
COARSE = np.array([8, 16, 32, 64, 128])


def geometric(x, t):
    """dx = a x dt + b x dW: x(T) = x(0) exp((a - b²/2) T + b W(T))."""
    return GROWTH * x, jnp.square(SPREAD * x)


def errors(scheme):
    """x(1) minus the exact solution for the same noise, by number of steps, [steps, N]."""
    noise = random.normal(random.key(0), (POINTS, FINE, 1))
    path = noise.sum(axis=1) / np.sqrt(FINE)
    exact = jnp.exp((GROWTH - 0.5 * SPREAD**2) + SPREAD * path)
    found = []
    for steps in COARSE:
        coarse = noise.reshape(POINTS, steps, -1, 1).sum(axis=2) / np.sqrt(FINE / steps)
        end, _ = integrate(geometric, jnp.ones((POINTS, 1)), coarse, 1.0, scheme)
        found.append((end - exact, end**2 - exact**2))
    return jax.tree.map(np.asarray, found)


def order(values):
    """Slope of log error against log step."""
    return -np.polyfit(np.log(COARSE), np.log(values), 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["euler", "heun"])
def test_orders_with_noise(scheme, x64):
    """Strong order 1/2, and weak order 1 of the mean square."""
    both = errors(scheme)
    assert order([np.abs(e).mean() for e, _ in both]) == pytest.approx(0.5, abs=0.1)
    weak = [abs(square.mean()) for _, square in both]
    noise = [square.std() / np.sqrt(POINTS) for _, square in both]
    assert all(w > 3 * n for w, n in zip(weak[:4], noise[:4], strict=True))
    assert order(weak) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize(("scheme", "wanted"), [("euler", 1.0), ("heun", 2.0)])
def test_orders_without_noise(scheme, wanted, x64):
    def turn(x, t):
        return jnp.stack([x[:, 1], -x[:, 0]], axis=1) * (1 + t), jnp.zeros_like(x)

    start, angle = jnp.array([[1.0, 0.0]]), 1.5  # the integral of 1 + t
    ends = [integrate(turn, start, jnp.zeros((1, k, 2)), 1.0, scheme)[0][0] for k in COARSE]
    exact = np.array([np.cos(angle), -np.sin(angle)])
    assert order([np.linalg.norm(e - exact) for e in ends]) == pytest.approx(wanted, abs=0.15)


def test_path_and_gradient_where_there_is_no_noise():
    def total(rate):
        end, path = integrate(
            lambda x, t: (rate * x, jnp.zeros_like(x)), jnp.ones((2, 1)), jnp.ones((2, 5, 1)), 1.0
        )
        return end.sum(), path

    gradient, path = jax.grad(total, has_aux=True)(1.0)
    assert gradient == pytest.approx(2 * 1.2**4, rel=1e-5)
    np.testing.assert_allclose(path[:, 0, 0], 1.2 ** np.arange(1, 6), rtol=1e-5)
