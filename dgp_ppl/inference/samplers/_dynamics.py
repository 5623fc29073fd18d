"""Steps of Hamiltonian and of Langevin dynamics, for kernels that evaluate their density."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey

Flat = Float[Array, " d"]
Integrator = Literal["baoab", "euler"]


class Evaluated(NamedTuple):
    """A position and its density."""

    position: Array  # [d]
    value: Array  # log density there, up to a constant, []
    slope: Array  # its gradient, [d]
    aux: Any  # what else is known there


def hamiltonian_move(
    key: PRNGKey, old: Evaluated, evaluate: Callable[[Array], Evaluated], sizes: Array, num: int
) -> tuple[Evaluated, Array]:
    """Make `num` leapfrog steps that leave the density invariant; also return the acceptance rate.

    `sizes` are step sizes of coordinates, [d]. An end without a finite density is rejected.
    """
    key_size, key_momentum, key_accept = random.split(key, 3)
    # Random lengths, because a fixed one may be the period of an orbit.
    sizes = sizes * random.uniform(key_size, minval=0.7, maxval=1.3)

    def leapfrog(_: Any, state: tuple[Evaluated, Array]) -> tuple[Evaluated, Array]:
        at, p = state
        p = p + 0.5 * sizes * at.slope
        at = evaluate(at.position + sizes * p)
        return at, p + 0.5 * sizes * at.slope

    p = random.normal(key_momentum, old.position.shape, old.position.dtype)
    new, q = lax.fori_loop(0, num, leapfrog, (old, p))
    gain = new.value - old.value + 0.5 * jnp.sum(jnp.square(p) - jnp.square(q))
    rate = jnp.exp(jnp.minimum(0.0, gain))
    rate = jnp.where(jnp.isfinite(rate) & jnp.isfinite(new.value), rate, 0.0)
    accept = random.uniform(key_accept) < rate
    return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old), rate


class Step(NamedTuple):
    """The result of one step."""

    position: Flat  # where the chain is now, [d]
    momentum: Flat  # in units of its stationary standard deviation, [d]
    gradient: Flat  # the gradient of the energy that kicked it, [d]
    temperature: Array  # mean square of the momentum halfway through the kick, []
    aux: Any  # what `gradient_at` returned beside the gradient


def langevin_step(
    integrator: Integrator, friction: float, position: Flat, momentum: Flat, noise: Flat,
    scale: Flat, removed: Flat, gradient_at: Callable[[Flat], tuple[Flat, Any]],
) -> Step:  # fmt: skip
    """Make one step with one gradient, a step size (`scale`) for each coordinate, and unit mass.

    ``"baoab"`` is half a drift, friction and noise, half a drift, and a kick (Leimkuhler & Matthews
    2013); it subtracts the variance `removed` from the noise, because the gradient's adds as much.
    ``"euler"`` is a drift, then kick, friction and noise in one (Chen et al. 2014, eq. 15). A step
    removes the fraction `friction` of the momentum. `gradient_at` also returns an auxiliary value.
    """
    x, r, c = position, momentum, 1 - friction
    if integrator == "baoab":
        x = x + 0.5 * scale * r
        r = c * r + jnp.sqrt(1 - c**2 - removed) * noise
        x = x + 0.5 * scale * r
    else:
        x = x + scale * r
    gradient, aux = gradient_at(x)
    kick = scale * gradient
    temperature = jnp.mean(jnp.square(r - 0.5 * kick))
    r = r - kick if integrator == "baoab" else c * r - kick + math.sqrt(2 * friction) * noise
    return Step(x, r, gradient, temperature, aux)
