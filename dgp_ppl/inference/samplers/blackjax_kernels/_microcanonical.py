"""Microcanonical Langevin samplers, with and without Metropolis adjustment."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.inference.samplers.blackjax_kernels._extra import require_blackjax
from dgp_ppl.inference.samplers.blackjax_kernels._tuning import (
    AcceptanceSearch,
    AutocorrelationLength,
    EnergySearch,
    Move,
    Tuner,
    Tuning,
    TurnLength,
)
from dgp_ppl.inference.samplers.exact import Flat, FlatDensity, ModelKernel

__all__ = ["MCLMC", "AdjustedMCLMC", "MicrocanonicalState"]

_MOST_STEPS = 1024  # of a trajectory
_MOST_EARLY_STEPS = 32  # before the scales of the coordinates are known


class MicrocanonicalState(NamedTuple):
    """The state of a chain of `MCLMC` or `AdjustedMCLMC`.

    Attributes:
        i: steps done.
        z: unconstrained values of the latent sites.
        chain: BlackJAX's state.
        potential_energy: -log p(y, z) without bounds, in nats.
        energy_error: change of the energy in the step, in nats. Of `AdjustedMCLMC`: its positive
            part, for the proposal.
        accept_prob: acceptance probability of the proposal; 1 without adjustment.
        num_steps: steps of the integrator; each takes two gradients.
        step_size: of the integrator, in units of the scaled coordinates.
        L: distance over which the momentum loses its direction, in the same units. Of
            `AdjustedMCLMC`: mean length of a trajectory.
        diverging: whether the step was not finite; the chain then stayed where it was. Of
            `AdjustedMCLMC`: or the energy error was above 1000.
        tuning: what warm-up has learned.
        num_warmup: steps of warm-up.
        rng_key: random key.
    """

    i: Array
    z: Values
    chain: Any
    potential_energy: Array
    energy_error: Array
    accept_prob: Array
    num_steps: Array
    step_size: Array
    L: Array
    diverging: Array
    tuning: Tuning
    num_warmup: Array
    rng_key: PRNGKey


class MCLMC(ModelKernel):
    """Microcanonical Langevin Monte Carlo (Robnik & Seljak 2024), a kernel for NumPyro's `MCMC`.

    A step moves the latent values at constant speed along a path that the gradient bends, and turns
    its direction a little at random. No step is rejected::

        mcmc = MCMC(dgp.MCLMC(model), num_warmup=1000, num_samples=5000, thinning=5)
        mcmc.run(key, x, y, z=z)

    Draws have a bias that grows with the step size, which `energy_variance` sets: the default makes
    variances of Gaussian targets 2 % too small. `AdjustedMCLMC` has no bias. Warm-up learns a scale
    for each coordinate, the step size and L, in each chain for itself. It needs about 500 steps.
    BlackJAX makes the steps: ``pip install dgp_ppl[blackjax]``.

    Unit noise of hidden layers is latent, as for NumPyro's NUTS.

    Args:
        model: a NumPyro model with at least two latent values, all continuous, and no minibatches.
        energy_variance: variance of a step's energy error, divided by the number of latent values,
            that warm-up aims at.
        step_size: a step size to keep, in units of the scaled coordinates; None for the search.
        L: distance over which the momentum loses its direction, to keep; None to learn it.
        precondition: learn a scale for each coordinate.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        ImportError: if BlackJAX is not installed.
        ValueError: if an option is not positive; in `init`, if the model has discrete sites,
            minibatches or fewer than two latent values, ``init_params`` do not fit, or the log
            density or its gradient is not finite.
    """

    def __init__(
        self,
        model: Model,
        *,
        energy_variance: float = 5e-4,
        step_size: float | None = None,
        L: float | None = None,
        precondition: bool = True,
        init_strategy: Callable[..., Any] | None = None,
    ) -> None:
        require_blackjax("MCLMC")
        super().__init__(model, init_strategy, "MCLMC")
        _check_positive("MCLMC", energy_variance=energy_variance, step_size=step_size, L=L)
        self.energy_variance, self.step_size, self.L = energy_variance, step_size, L
        self.precondition = precondition

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("z", "diverging", "energy_error")

    def get_diagnostics_str(self, state: MicrocanonicalState) -> str:
        return f"step size {state.step_size:.2g}, L {state.L:.2g}"

    def _first(
        self, key: PRNGKey, num_warmup: int, z: Values, position: Flat, density: FlatDensity
    ) -> MicrocanonicalState:
        blackjax = require_blackjax("MCLMC")
        _check_dim("MCLMC", position)
        chain = blackjax.mclmc.init(position, density, key)
        return _first_state(key, num_warmup, z, chain, self._tuner(position))

    def _next(
        self, key: PRNGKey, state: MicrocanonicalState, density: FlatDensity
    ) -> tuple[MicrocanonicalState, Flat]:
        blackjax = require_blackjax("MCLMC")
        step, tuning = blackjax.mclmc.build_kernel(), state.tuning
        key, key_turn = random.split(key)
        # Paths without noise show how far they run before they turn back.
        length = jnp.where(tuning.measuring, jnp.inf, tuning.length)
        chain, info = step(
            key, state.chain, density, jnp.square(tuning.scale), length, tuning.step_size
        )
        report = jnp.where(info.nonans, info.energy_change, jnp.nan)
        new = state._replace(
            energy_error=info.energy_change, num_steps=jnp.ones_like(state.i),
            diverging=~info.nonans,
        )  # fmt: skip
        tuner = self._tuner(chain.position)
        new = _moved(new, chain, tuner, Move(chain.position, chain.momentum, report))
        other = blackjax.util.generate_unit_vector(key_turn, chain.momentum)
        turned = tuning.measuring & new.tuning.path.turned
        momentum = jnp.where(turned, other, chain.momentum)
        return new._replace(chain=chain._replace(momentum=momentum)), chain.position

    def _tuner(self, position: Flat) -> Tuner:
        search = EnergySearch(self.energy_variance, len(position))
        return Tuner(search, TurnLength(), self.step_size, self.L, self.precondition)


class AdjustedMCLMC(ModelKernel):
    """Metropolis-adjusted microcanonical sampling (Robnik et al. 2025), for NumPyro's `MCMC`.

    A step draws a direction, follows the path of `MCLMC` over a random distance with mean L, and
    accepts its end with a probability that leaves the posterior invariant. Draws have no bias once
    the chain has converged::

        mcmc = MCMC(dgp.AdjustedMCLMC(model), num_warmup=500, num_samples=1000)
        mcmc.run(key, x, y, z=z)

    Warm-up, models and units are those of `MCLMC`. BlackJAX makes the steps:
    ``pip install dgp_ppl[blackjax]``.

    Args:
        model: a NumPyro model with at least two latent values, all of them continuous, and no
            minibatches.
        target_accept_prob: mean acceptance probability for which warm-up searches the step size.
        step_size: a step size to keep, in units of the scaled coordinates; None for the search.
        L: mean length of a trajectory to keep; None to learn it.
        precondition: learn a scale for each coordinate.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        ImportError: if BlackJAX is not installed.
        ValueError: if an option is out of range; in `init`, as in `MCLMC`.
    """

    def __init__(
        self,
        model: Model,
        *,
        target_accept_prob: float = 0.9,
        step_size: float | None = None,
        L: float | None = None,
        precondition: bool = True,
        init_strategy: Callable[..., Any] | None = None,
    ) -> None:
        require_blackjax("AdjustedMCLMC")
        super().__init__(model, init_strategy, "AdjustedMCLMC")
        _check_positive("AdjustedMCLMC", step_size=step_size, L=L)
        if not 0 < target_accept_prob < 1:
            raise ValueError(
                f"AdjustedMCLMC: target_accept_prob is {target_accept_prob}, wanted in (0, 1)"
            )
        self.target_accept_prob, self.step_size, self.L = target_accept_prob, step_size, L
        self.precondition = precondition

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("z", "diverging", "accept_prob")

    def get_diagnostics_str(self, state: MicrocanonicalState) -> str:
        return (
            f"{state.num_steps} steps of size {state.step_size:.2g}, L {state.L:.2g}, "
            f"acc. prob={state.accept_prob:.2f}"
        )

    def _first(
        self, key: PRNGKey, num_warmup: int, z: Values, position: Flat, density: FlatDensity
    ) -> MicrocanonicalState:
        blackjax = require_blackjax("AdjustedMCLMC")
        _check_dim("AdjustedMCLMC", position)
        chain = blackjax.adjusted_mclmc.init(position, density)
        return _first_state(key, num_warmup, z, chain, self._tuner())

    def _next(
        self, key: PRNGKey, state: MicrocanonicalState, density: FlatDensity
    ) -> tuple[MicrocanonicalState, Flat]:
        step = require_blackjax("AdjustedMCLMC").adjusted_mclmc.build_kernel()
        tuning = state.tuning
        key, key_length = random.split(key)
        # Uniform on 1 ... 2 mean - 1, with a fractional mean.
        mean = jnp.maximum(tuning.length / tuning.step_size, 1)
        early = state.i < 0.25 * state.num_warmup
        mean = jnp.minimum(mean, jnp.where(early, _MOST_EARLY_STEPS, _MOST_STEPS))
        draw = random.uniform(key_length, (), mean.dtype)
        num_steps = jnp.ceil(draw * (2 * mean - 1)).astype(jnp.int32)
        num_steps = jnp.maximum(num_steps, 1)
        chain, info = step(
            key, state.chain, density, tuning.step_size, (num_steps,), jnp.square(tuning.scale)
        )
        rate = jnp.nan_to_num(info.acceptance_rate)
        new = state._replace(
            energy_error=-jnp.log(rate), accept_prob=rate, num_steps=num_steps,
            diverging=info.is_divergent,
        )  # fmt: skip
        move = Move(chain.position, jnp.zeros_like(chain.position), rate)
        return _moved(new, chain, self._tuner(), move), chain.position

    def _tuner(self) -> Tuner:
        search = AcceptanceSearch(self.target_accept_prob)
        return Tuner(search, AutocorrelationLength(), self.step_size, self.L, self.precondition)


def _first_state(
    key: PRNGKey, num_warmup: int, z: Values, chain: Any, tuner: Tuner
) -> MicrocanonicalState:
    tuning = tuner.init(chain.position)
    energy = -chain.logdensity
    return MicrocanonicalState(
        i=jnp.zeros((), jnp.int32),
        z=z,
        chain=chain,
        potential_energy=energy,
        energy_error=jnp.zeros_like(energy),
        accept_prob=jnp.ones_like(energy),
        num_steps=jnp.zeros((), jnp.int32),
        step_size=tuning.step_size,
        L=tuning.length,
        diverging=jnp.zeros((), bool),
        tuning=tuning,
        num_warmup=jnp.asarray(num_warmup, jnp.int32),
        rng_key=key,
    )


def _moved(state: MicrocanonicalState, chain: Any, tuner: Tuner, move: Move) -> MicrocanonicalState:
    """Return the state after a step, which used the state's tuning."""
    used = state.tuning
    return state._replace(
        i=state.i + 1,
        chain=chain,
        potential_energy=-chain.logdensity,
        step_size=used.step_size,
        L=used.length,
        tuning=tuner.update(used, state.i, state.num_warmup, move),
    )


def _check_positive(caller: str, **options: float | None) -> None:
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{caller}: {name} is {value}, wanted a positive number")


def _check_dim(caller: str, position: Flat) -> None:
    if len(position) < 2:
        raise ValueError(
            f"{caller}: the model has one latent value, wanted at least two, because the momentum "
            "moves on a sphere; use numpyro's NUTS"
        )
