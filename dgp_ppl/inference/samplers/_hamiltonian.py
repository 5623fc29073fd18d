"""A transition of Hamiltonian Monte Carlo, for kernels that evaluate their density themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array

from dgp_ppl._typing import PRNGKey

__all__ = ["Evaluated", "hamiltonian_move"]


class Evaluated(NamedTuple):
    """A position and its density."""

    position: Array  # [d]
    value: Array  # log density there, up to a constant, []
    slope: Array  # its gradient, [d]
    aux: Any  # what else is known there


def hamiltonian_move(
    key: PRNGKey, old: Evaluated, evaluate: Callable[[Array], Evaluated], sizes: Array, num: int
) -> tuple[Evaluated, Array]:
    """Make a transition that leaves the density invariant; also return its acceptance probability.

    An end without a finite density is rejected.

    Args:
        key: random key.
        old: where the chain is.
        evaluate: maps a position to its density.
        sizes: step size of each coordinate, [d].
        num: leapfrog steps.
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
