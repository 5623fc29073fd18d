"""Integrators of Itô stochastic differential equations dx = mu(x, t) dt + sd(x, t) dW.

N: points, D: dimensions, K: steps of length T / K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from dgp_ppl.linalg._products import deviation

__all__ = ["Scheme", "integrate"]

Scheme = Literal["euler", "heun"]


def integrate(
    coefficients: Callable[[Array, Array], tuple[Array, Array]],
    x: Float[Array, "N D"],
    noise: Float[Array, "N K D"],
    horizon: float,
    scheme: Scheme = "euler",
) -> tuple[Float[Array, "N D"], Float[Array, "K N D"]]:
    """Integrate from x(0) to x(T).

    ``"euler"`` is the Euler-Maruyama scheme, x + mu dt + sd sqrt(dt) e. It has strong order 1/2 (1
    if sd does not depend on x) and weak order 1. ``"heun"`` replaces mu by the mean of its values
    at both ends of that step. It has the same orders, and order 2 without noise. The backward pass
    recomputes each step, so memory does not grow with the intermediate values of a step.

    Args:
        coefficients: a function from points [N, D] and the time [] to the drift mu and the
            variance sd², [N, D] each. The noise is independent over points and dimensions.
        x: initial points, [N, D].
        noise: standard normal noise of all steps, [N, K, D].
        horizon: T, in the units of time of the coefficients.
        scheme: "euler" or "heun".

    Returns:
        x(T), [N, D], and x after every step, [K, N, D].

    Raises:
        ValueError: if the scheme is unknown, K is 0, or the horizon is negative.
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
        random_part = deviation(var * dt) * e  # a layer drawn as a whole function has variance 0
        new = x + mu * dt + random_part
        if scheme == "heun":
            new = x + 0.5 * (mu + coefficients(new, t + dt)[0]) * dt + random_part
        return new, new

    times = dt * jnp.arange(steps, dtype=x.dtype)
    return lax.scan(step, x, (times, jnp.moveaxis(noise, 1, 0)))
