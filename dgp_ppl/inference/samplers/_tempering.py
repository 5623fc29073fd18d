"""Parallel tempering between the prior and the posterior of any NumPyro model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int

from dgp_ppl._checks import check_count
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.inference.samplers._dynamics import Evaluated, Flat, hamiltonian_move
from dgp_ppl.inference.samplers._kernel import ExactKernel, FlatDensity

_ACCEPTANCE = 0.8  # the acceptance rate that step sizes are adapted to
_FIRST_SIZE = 0.3  # initial step size in one dimension
_FORGETTING = 0.6  # rate of adaptation after i steps: (i + 10) to the minus this power
_SPACINGS = (8, 4, 2)  # temperatures are spaced again after 1 / so many of the warm-up
_SCALED_AFTER = 30  # steps, before which the scales are 1


class Ladder(NamedTuple):
    """The temperatures of R replicas, from 1 (the posterior) to 0 (the prior)."""

    betas: Float[Array, " R"]  # inverse temperatures, falling, [R]
    replica: Int[Array, " R"]  # which replica is at each temperature, [R]
    # By replica: 1 on the way up from the prior, -1 on the way down, 0 before either, [R].
    leg: Int[Array, " R"]
    # By replica: how often it came to the posterior from the prior, [R].
    round_trips: Int[Array, " R"]
    # Mean rejection probability of swaps with the next temperature, [R - 1].
    rejection: Float[Array, " R-1"]
    attempts: Int[Array, " R-1"]  # how many of them the mean is over, [R - 1]


def _first_ladder(num: int, dtype: jnp.dtype) -> Ladder:
    """Return a ladder that is dense near the prior, where a likelihood of many rows is sharp."""
    betas = jnp.linspace(1, 0, num, dtype=dtype) ** 4
    empty = jnp.zeros(num - 1, dtype)
    none = jnp.zeros(num, jnp.int32)
    return Ladder(betas, jnp.arange(num), none, none, empty, none[1:])


def _swapped(
    key: PRNGKey, ladder: Ladder, log_likelihood: Array, odd: Array | int
) -> tuple[Ladder, Array]:
    """Swap neighbours: the pairs (0, 1), (2, 3), ..., or the pairs (1, 2), (3, 4), ... if `odd`.

    Turns of even and odd pairs make replicas travel further than random pairs do (Okabe et al.
    2001; Syed et al. 2022, algorithm 1). Also return where each replica's values come from, [R].
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


def _respaced(ladder: Ladder) -> Ladder:
    """Space the temperatures such that neighbours reject alike, and restart the counts.

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


class TemperingState(NamedTuple):
    """The state of a chain of `ParallelTempering`, with R replicas; arrays of many have an axis C.

    Further statistics are ``step_size``, ``swap_prob`` and ``round_trips``.
    """

    i: Array  # steps done
    z: Values  # unconstrained values of the latent sites at temperature 1
    positions: Array  # of all temperatures, the posterior first, [R, d]
    log_likelihood: Array  # at each of them, [R]
    potential_energy: Array  # -log p(y, z) without bounds at temperature 1, in nats
    accept_prob: Array  # acceptance probability of the move at temperature 1
    diverging: Array  # whether the move's end at temperature 1 had no finite density
    ladder: Ladder  # the temperatures, and which replica is where
    log_sizes: Array  # log step sizes relative to the coordinates' scales, [R]
    mean: Array  # of the positions at each temperature, [R, d]
    variance: Array  # of the same, [R, d]
    num_warmup: Array  # steps of warm-up
    rng_key: PRNGKey  # random key

    @property
    def step_size(self) -> Array:
        """Step size at temperature 1."""
        return jnp.exp(self.log_sizes[..., 0])

    @property
    def swap_prob(self) -> Array:
        """Mean acceptance probability of a swap so far."""
        return 1 - jnp.mean(self.ladder.rejection, axis=-1)

    @property
    def round_trips(self) -> Array:
        """How often a replica came to the posterior from the prior, after warm-up."""
        return jnp.sum(self.ladder.round_trips, axis=-1, dtype=self.ladder.round_trips.dtype)


class ParallelTempering(ExactKernel):
    """Parallel tempering (Geyer 1991; Syed et al. 2022), a kernel for posteriors with many modes.

    Replicas of the chain sample p(z) p(y | z)^beta at inverse temperatures beta from 1 to 0. Each
    step moves all of them by Hamiltonian Monte Carlo, draws the last one from the prior, and
    swaps neighbours. Values that come up from the prior bring new modes::

        mcmc = MCMC(dgp.ParallelTempering(model), num_warmup=1000, num_samples=2000)
        mcmc.run(key, x, y, z=z, extra_fields=("round_trips",))

    Check that ``round_trips``, how often a replica came from the prior to the posterior after
    warm-up, is a few dozen or more: each brings a value that does not depend on where the chain
    was. Warm-up learns the step size and the scale of each coordinate at each temperature, and
    spaces the temperatures evenly; :doc:`/theory/tempering` says how many are best. On a model that
    `transported` has made, replicas range between a fitted guide and the posterior.

    Args:
        model: a NumPyro model without minibatches, whose latent sites are continuous and have
            proper priors.
        num_temperatures: R, including the posterior's and the prior's.
        leapfrogs: leapfrog steps of a move.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: if a number is too small; in `init`, if the model has discrete sites,
            minibatches or improper priors, ``init_params`` do not fit, or the log density or its
            gradient is not finite.

    Source: Syed, Bouchard-Côté, Deligiannidis & Doucet (2022), "Non-reversible parallel tempering".
    """

    default_fields: Any = ("z", "diverging", "round_trips")

    def __init__(
        self,
        model: Model,
        *,
        num_temperatures: int = 16,
        leapfrogs: int = 8,
        init_strategy: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(model, init_strategy)
        check_count("ParallelTempering", "num_temperatures", num_temperatures, 3)
        check_count("ParallelTempering", "leapfrogs", leapfrogs)
        self.num_temperatures, self.leapfrogs = num_temperatures, leapfrogs

    def get_diagnostics_str(self, state: TemperingState) -> str:
        trips, rate = jnp.mean(state.round_trips), jnp.mean(state.swap_prob)
        return f"{float(trips):.0f} round trips, {100 * float(rate):.0f} % of swaps"

    def _first(
        self, key: PRNGKey, num_warmup: int, z: Values, position: Flat, density: FlatDensity
    ) -> TemperingState:
        R, d = self.num_temperatures, len(position)
        draws = jax.vmap(density.prior_draw)(random.split(key, R - 1))
        positions = jnp.concatenate([position[None], draws])
        # Prior draws far from the data may have no finite density; the start has one.
        prior, likelihood = jax.vmap(density.parts)(positions)
        sound = jnp.isfinite(prior) & jnp.isfinite(likelihood)
        positions = jnp.where(sound[:, None], positions, position)
        prior, likelihood = (jnp.where(sound, a, a[0]) for a in (prior, likelihood))
        return TemperingState(
            i=jnp.zeros((), jnp.int32),
            z=z,
            positions=positions,
            log_likelihood=likelihood,
            potential_energy=-(prior[0] + likelihood[0]),
            accept_prob=jnp.zeros((), position.dtype),
            diverging=jnp.zeros((), bool),
            ladder=_first_ladder(R, position.dtype),
            log_sizes=jnp.full(R, jnp.log(_FIRST_SIZE * d**-0.25), position.dtype),
            mean=positions,
            variance=jnp.ones_like(positions),
            num_warmup=jnp.asarray(num_warmup, jnp.int32),
            rng_key=key,
        )

    def _next(
        self, key: PRNGKey, state: TemperingState, density: FlatDensity
    ) -> tuple[TemperingState, Flat]:
        key_moves, key_prior, key_swap = random.split(key, 3)
        ladder, warm = state.ladder, state.i < state.num_warmup
        scales = jnp.where(state.i < _SCALED_AFTER, 1.0, jnp.sqrt(state.variance))
        keys = random.split(key_moves, self.num_temperatures)
        move = jax.vmap(functools.partial(self._moved, density))
        sizes = jnp.exp(state.log_sizes)[:, None] * scales
        *moved, rates = move(keys, state.positions, ladder.betas, sizes)
        fresh = density.prior_draw(key_prior)
        drawn = fresh, *density.parts(fresh)
        at = [a.at[-1].set(b) for a, b in zip(moved, drawn, strict=True)]
        adapted = self._adapted(state, at[0], rates)
        ladder, source = _swapped(key_swap, ladder, at[2], state.i % 2)
        positions, prior, likelihood = (a[source] for a in at)
        new = jax.tree.map(lambda a, b: jnp.where(warm, a, b), adapted, state)._replace(
            i=state.i + 1,
            positions=positions,
            log_likelihood=likelihood,
            potential_energy=-(prior[0] + likelihood[0]),
            accept_prob=rates[0],
            diverging=rates[0] == 0,
            ladder=self._spaced(ladder, state.i + 1, state.num_warmup),
        )
        return new, positions[0]

    def _moved(
        self, density: FlatDensity, key: PRNGKey, position: Flat, beta: Array, sizes: Flat
    ) -> tuple[Flat, Array, Array, Array]:
        """Move at one temperature; return position, parts of its log density, acceptance rate."""

        def tempered(x: Flat) -> tuple[Array, tuple[Array, Array]]:
            prior, likelihood = density.parts(x)
            return prior + beta * likelihood, (prior, likelihood)

        def evaluate(x: Flat) -> Evaluated:
            (value, parts), slope = jax.value_and_grad(tempered, has_aux=True)(x)
            return Evaluated(x, value, slope, parts)

        # The slope depends on the temperature, so it is computed again at the start.
        new, rate = hamiltonian_move(key, evaluate(position), evaluate, sizes, self.leapfrogs)
        return new.position, *new.aux, rate

    def _adapted(self, state: TemperingState, positions: Array, rates: Array) -> TemperingState:
        """Return the state with step sizes and scales after the moves."""
        rate = (state.i + 10.0) ** -_FORGETTING
        change, dtype = positions - state.mean, state.mean.dtype
        log_sizes = state.log_sizes + 2 * rate * (rates - _ACCEPTANCE)
        variance = (1 - rate) * (state.variance + rate * jnp.square(change))
        return state._replace(
            log_sizes=log_sizes.astype(dtype),
            mean=(state.mean + rate * change).astype(dtype),
            variance=variance.astype(dtype),
        )

    def _spaced(self, ladder: Ladder, done: Array, num_warmup: Array) -> Ladder:
        """Space the temperatures again at some steps of warm-up, and count trips from its end."""
        due = jnp.any(jnp.stack([done == num_warmup // part for part in _SPACINGS])) & (done > 1)
        ladder = jax.tree.map(lambda a, b: jnp.where(due, a, b), _respaced(ladder), ladder)
        trips = jnp.where(done == num_warmup, 0, ladder.round_trips)
        return ladder._replace(round_trips=trips)
