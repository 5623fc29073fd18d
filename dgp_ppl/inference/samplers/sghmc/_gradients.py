"""Stochastic gradients of a potential energy, with control variates where wanted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from dgp_ppl._partition import Call
from dgp_ppl._typing import PRNGKey, Values
from dgp_ppl.inference.samplers._potential import Energy, Potential
from dgp_ppl.inference.samplers.sghmc._dynamics import Flat

__all__ = ["Gradients"]

_ANCHOR_DRAWS = 32  # keys that the anchor's gradient is averaged over, where layers draw noise


class Gradients:
    """Unbiased estimates of the energy's gradient.

    With control variates an estimate is the gradient of all rows at an *anchor*, plus the
    minibatch's difference between the current values and the anchor (Baker et al. 2019).

    Args:
        potential: the energy.
        control_variates: whether to use them; they double the cost.
    """

    def __init__(self, potential: Potential, control_variates: bool) -> None:
        self.potential, self.control_variates = potential, control_variates

    def anchor(self, key: PRNGKey, unconstrained: Values, call: Call) -> Array:
        """Return these values and the gradient of all rows, [2, d], or [2, 0] without variates.

        The gradient is a mean over keys, which draw the unit noise of hidden layers.
        """
        flat = ravel_pytree(unconstrained)[0]
        if not self.control_variates:
            return jnp.zeros((2, 0), flat.dtype)

        every_row = self.potential.of_all_rows()

        def whole(key: PRNGKey) -> Flat:
            return _energy_and_gradient(every_row, key, unconstrained, call)[1]

        keys = random.split(key, _ANCHOR_DRAWS)
        return jnp.stack([flat, jnp.mean(lax.map(whole, keys), axis=0)])

    def __call__(
        self, key: PRNGKey, unconstrained: Values, anchor: Array, call: Call
    ) -> tuple[Energy, Flat]:
        """Estimate the energy and its gradient, [d]."""
        energy, gradient = _energy_and_gradient(self.potential, key, unconstrained, call)
        if self.control_variates:
            unravel = ravel_pytree(unconstrained)[1]
            there = _energy_and_gradient(self.potential, key, unravel(anchor[0]), call)
            gradient = anchor[1] + gradient - there[1]
        return energy, gradient


def _energy_and_gradient(
    potential: Potential, key: PRNGKey, unconstrained: Values, call: Call
) -> tuple[Energy, Flat]:
    def energy(u: Values) -> tuple[Array, Energy]:
        estimate = potential(key, u, call)
        return estimate.value, estimate

    (_, estimate), gradient = jax.value_and_grad(energy, has_aux=True)(unconstrained)
    return estimate, ravel_pytree(gradient)[0]
