"""The inverse temperatures of parallel tempering: replicas, swaps, round trips, and spacing."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int

from dgp_ppl._typing import PRNGKey

__all__ = ["Ladder", "first_ladder", "respaced", "swapped"]


class Ladder(NamedTuple):
    """The temperatures of R replicas, from 1 (the posterior) to 0 (the prior).

    Attributes:
        betas: inverse temperatures, falling, [R].
        replica: which replica is at each temperature, [R].
        leg: by replica: 1 on the way up from the prior, -1 on the way down, 0 before either, [R].
        round_trips: by replica: how often it came to the posterior from the prior, [R].
        rejection: mean rejection probability of swaps with the next temperature, [R - 1].
        attempts: how many of them the mean is over, [R - 1].
    """

    betas: Float[Array, " R"]
    replica: Int[Array, " R"]
    leg: Int[Array, " R"]
    round_trips: Int[Array, " R"]
    rejection: Float[Array, " R-1"]
    attempts: Int[Array, " R-1"]

    @property
    def barrier(self) -> Array:
        """The communication barrier: the sum of mean rejections."""
        return jnp.sum(self.rejection)


def first_ladder(num: int, dtype: jnp.dtype) -> Ladder:
    """Return a ladder that is dense near the prior, where a likelihood of many rows is sharp."""
    betas = jnp.linspace(1, 0, num, dtype=dtype) ** 4
    empty = jnp.zeros(num - 1, dtype)
    none = jnp.zeros(num, jnp.int32)
    return Ladder(betas, jnp.arange(num), none, none, empty, none[1:])


def swapped(
    key: PRNGKey, ladder: Ladder, log_likelihood: Array, odd: Array
) -> tuple[Ladder, Array]:
    """Swap neighbours, even pairs or odd ones.

    Turns of even and odd pairs make replicas travel further than random pairs do (Okabe et al.
    2001; Syed et al. 2022, algorithm 1).

    Args:
        key: random key.
        ladder: before.
        log_likelihood: at each temperature, [R].
        odd: whether the pairs are (1, 2), (3, 4), ... and not (0, 1), (2, 3), ...

    Returns:
        The ladder, and the temperature that each replica's values come from, [R].
    """
    betas, R = ladder.betas, len(ladder.betas)
    tried = jnp.arange(R - 1) % 2 == odd
    gain = (betas[:-1] - betas[1:]) * (log_likelihood[1:] - log_likelihood[:-1])
    accept = jnp.exp(jnp.minimum(0.0, jnp.where(jnp.isnan(gain), -jnp.inf, gain)))
    swaps = tried & (random.uniform(key, (R - 1,)) < accept)
    source = jnp.arange(R) + jnp.append(swaps, False) - jnp.append(False, swaps)
    replica = ladder.replica[source]
    # A round trip ends where a replica that was last at the prior reaches the posterior.
    first, last = replica[0], replica[-1]
    arrived = ladder.leg[first] == 1
    trips = ladder.round_trips.at[first].add(arrived.astype(ladder.round_trips.dtype))
    leg = ladder.leg.at[first].set(-1).at[last].set(1)
    attempts = ladder.attempts + tried
    change = jnp.where(tried, (1 - accept - ladder.rejection) / jnp.maximum(attempts, 1), 0.0)
    rejection = ladder.rejection + change
    return Ladder(betas, replica, leg, trips, rejection, attempts), source


def respaced(ladder: Ladder) -> Ladder:
    """Space the temperatures such that neighbours reject alike, and count anew.

    The cumulative rejection as a function of beta hardly depends on the spacing (Syed et al. 2022,
    section 5.4); it is taken as linear between temperatures.
    """
    # No pair is taken as closer than a hundredth of the mean, so that the map can be inverted.
    least = 0.01 * jnp.mean(ladder.rejection) + 1e-6
    length = jnp.cumsum(jnp.maximum(ladder.rejection, least))
    length = jnp.append(jnp.zeros(1, length.dtype), length)
    at = jnp.linspace(0, 1, len(ladder.betas), dtype=length.dtype) * length[-1]
    betas = jnp.interp(at, length, ladder.betas).at[0].set(1.0).at[-1].set(0.0)
    empty = jnp.zeros_like(ladder.rejection)
    return ladder._replace(betas=betas, rejection=empty, attempts=jnp.zeros_like(ladder.attempts))
