"""Integrators of stochastic differential equations dx = mu(x, t) dt + sd(x, t) dW, as Itô has them.

N: points, D: dimensions, K: steps of T / K each.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["Scheme", "integrate"]

Scheme = Literal["euler", "heun"]


def integrate(
    coefficients: Callable[[Array, Array], tuple[Array, Array]],
    x: Float[Array, "N D"],
    noise: Float[Array, "N K D"],
    horizon: float,
    scheme: Scheme = "euler",
) -> tuple[Float[Array, "N D"], Float[Array, "K N D"]]:
    """x(T) from x(0), and the path to it.

    ``"euler"`` is Euler and Maruyama's scheme, x + mu dt + sd sqrt(dt) e: of strong order 1/2 (1 if
    sd does not depend on x) and weak order 1. ``"heun"`` replaces mu by the mean of its values at
    both ends of that step: of the same orders, and of order 2 where there is no noise. Memory does
    not grow with what a step keeps for gradients: steps are run again.

    Args:
        coefficients: from points [N, D] and the time [] to drift mu and variance sd², [N, D]
            each; noise is independent over points and dimensions.
        x: where points start.
        noise: unit normals of all steps.
        horizon: T, in the units of time of the coefficients.
        scheme: "euler" or "heun".

    Returns:
        x(T), and x after every step.

    Raises:
        ValueError: for another scheme, no steps, or a horizon below zero.
    """
    steps = noise.shape[1]
    if scheme not in ("euler", "heun"):
        raise ValueError(f"integrate: scheme is {scheme!r}, wanted 'euler' or 'heun'")
    if steps < 1:
        raise ValueError("integrate: steps is 0, wanted at least 1")
    if not horizon >= 0:
        raise ValueError(f"integrate: horizon is {horizon}, wanted at least 0")
    dt = horizon / steps

    @jax.checkpoint
    def step(x: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        t, e = at
        mu, var = coefficients(x, t)
        # The square root has no slope at zero, where a layer that is drawn whole is.
        random_part = jnp.where(var > 0, jnp.sqrt(jnp.where(var > 0, var, 1.0) * dt), 0.0) * e
        new = x + mu * dt + random_part
        if scheme == "heun":
            new = x + 0.5 * (mu + coefficients(new, t + dt)[0]) * dt + random_part
        return new, new

    times = dt * jnp.arange(steps, dtype=x.dtype)
    return lax.scan(step, x, (times, jnp.moveaxis(noise, 1, 0)))
