"""One step of underdamped Langevin dynamics, the motion that `SGHMC` simulates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Dynamics", "Flat", "Integrator", "Step"]

Flat = Float[Array, " d"]
Integrator = Literal["baoab", "euler"]


class Step(NamedTuple):
    """The result of one step."""

    position: Flat  # where the chain is now, [d]
    momentum: Flat  # in units of its stationary standard deviation, [d]
    gradient: Flat  # the gradient of the energy that kicked it, [d]
    temperature: Array  # mean square of the momentum halfway through the kick, []
    aux: Any  # what `gradient_at` returned beside the gradient


@dataclasses.dataclass(frozen=True)
class Dynamics:
    """Langevin dynamics with a step size for each coordinate and unit mass.

    ``"baoab"`` is half a drift, friction and noise, half a drift, and a kick (Leimkuhler & Matthews
    2013). ``"euler"`` is a drift, then kick, friction and noise in one (Chen et al. 2014, eq. 15).

    Args:
        friction: fraction a of the momentum that a step removes, in (0, 1].
        integrator: the order of the updates.
    """

    friction: float
    integrator: Integrator

    def step(
        self,
        position: Flat,
        momentum: Flat,
        noise: Flat,
        scale: Flat,
        removed: Flat,
        gradient_at: Callable[[Flat], tuple[Flat, Any]],
    ) -> Step:
        """Make one step with one gradient.

        Args:
            position: [d].
            momentum: [d].
            noise: draws of N(0, 1), [d].
            scale: step size of each coordinate, [d].
            removed: variance to subtract from the injected noise because the gradient's noise adds
                as much, [d]. Only ``"baoab"`` uses it.
            gradient_at: maps a position to the energy's gradient there and an auxiliary value.
        """
        x, r, c = position, momentum, 1 - self.friction
        if self.integrator == "baoab":
            x = x + 0.5 * scale * r
            r = c * r + jnp.sqrt(1 - c**2 - removed) * noise
            x = x + 0.5 * scale * r
        else:
            x = x + scale * r
        gradient, aux = gradient_at(x)
        kick = scale * gradient
        temperature = jnp.mean(jnp.square(r - 0.5 * kick))
        r = (
            r - kick
            if self.integrator == "baoab"
            else (c * r - kick + math.sqrt(2 * self.friction) * noise)
        )
        return Step(x, r, gradient, temperature, aux)
