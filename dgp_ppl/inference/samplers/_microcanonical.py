"""Microcanonical Langevin samplers: BlackJAX's steps, with the rules of their warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array

from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.inference.samplers._blackjax import BlackJAXKernel
from dgp_ppl.inference.samplers._dynamics import Flat
from dgp_ppl.inference.samplers._kernel import FlatDensity

__all__ = ["MCLMC", "AdjustedMCLMC"]

_MOST_STEPS = 1024.0  # of a trajectory, on average
_MOST_STRETCH = 4.0  # of the length of trajectories


class MCLMC(BlackJAXKernel):
    """Microcanonical Langevin Monte Carlo (Robnik & Seljak 2024), a kernel for NumPyro's `MCMC`.

    A step moves the latent values at constant speed along a path that the gradient bends, and turns
    its direction a little at random. No step is rejected::

        mcmc = MCMC(dgp.MCLMC(model), num_warmup=1000, num_samples=5000, thinning=5)
        mcmc.run(key, x, y, z=z)

    Draws have a bias that grows with the step size, which `energy_variance` sets: the default makes
    variances of Gaussian targets 2 % too small. `AdjustedMCLMC` has no bias. BlackJAX makes the
    steps, and finds a scale for each coordinate, the step size and L by `num_warmup` steps of its
    own (at least 500) before NumPyro's warm-up: ``pip install dgp_ppl[blackjax]``.

    Unit noise of hidden layers is latent, as for NumPyro's NUTS. For a given step size and L use
    `BlackJAXKernel` with ``blackjax.mclmc``.

    Args:
        model: a NumPyro model with at least two latent values, all continuous, and no minibatches.
        energy_variance: variance of a step's energy error, divided by the number of latent values,
            that the search for the step size aims at.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        ImportError: if BlackJAX is not installed.
        ValueError: if `energy_variance` is not positive; in `init`, as in `BlackJAXKernel`, or if
            the model has fewer than two latent values.
    """

    def __init__(
        self,
        model: Model,
        *,
        energy_variance: float = 5e-4,
        init_strategy: Callable[..., Any] | None = None,
    ) -> None:
        if not (math.isfinite(energy_variance) and energy_variance > 0):
            raise ValueError(
                f"MCLMC: energy_variance is {energy_variance}, wanted a positive number"
            )
        self.energy_variance = energy_variance
        search = _adaptation(partial(_search, energy_variance=energy_variance))
        super().__init__(model, _mclmc, adaptation=search, init_strategy=init_strategy)

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("z", "diverging", "energy_error")


class AdjustedMCLMC(BlackJAXKernel):
    """Metropolis-adjusted microcanonical sampling (Robnik et al. 2025), for NumPyro's `MCMC`.

    A step draws a direction, follows the path of `MCLMC` over a random distance with mean L, and
    accepts its end with a probability that leaves the posterior invariant. Draws have no bias once
    the chain has converged::

        mcmc = MCMC(dgp.AdjustedMCLMC(model), num_warmup=500, num_samples=1000)
        mcmc.run(key, x, y, z=z)

    Warm-up and models are as for `MCLMC`. BlackJAX makes the steps:
    ``pip install dgp_ppl[blackjax]``.

    Args:
        model: a NumPyro model with at least two latent values, all continuous, and no minibatches.
        target_accept_prob: mean acceptance probability for which warm-up searches the step size.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        ImportError: if BlackJAX is not installed.
        ValueError: if `target_accept_prob` is out of range; in `init`, as in `MCLMC`.
    """

    def __init__(
        self,
        model: Model,
        *,
        target_accept_prob: float = 0.9,
        init_strategy: Callable[..., Any] | None = None,
    ) -> None:
        if not 0 < target_accept_prob < 1:
            raise ValueError(
                f"AdjustedMCLMC: target_accept_prob is {target_accept_prob}, wanted in (0, 1)"
            )
        self.target_accept_prob = target_accept_prob
        search = _adaptation(partial(_adjusted_search, target=target_accept_prob))
        super().__init__(model, _adjusted, adaptation=search, init_strategy=init_strategy)

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("z", "diverging", "accept_prob")


def _mclmc(density: FlatDensity, **parameters: Array) -> Any:
    import blackjax

    return blackjax.mclmc(density, **parameters)


def _adjusted(density: FlatDensity, L: Array, step_size: Array, inverse_mass_matrix: Flat) -> Any:
    import blackjax

    return blackjax.adjusted_mclmc_dynamic(
        density, step_size, inverse_mass_matrix=inverse_mass_matrix,
        integration_steps_fn=_draw_num_steps,
        integration_steps_params=(jnp.clip(L / step_size, 1, _MOST_STEPS),),
    )  # fmt: skip


def _draw_num_steps(key: PRNGKey, mean: Array) -> Array:
    """Draw uniformly from 1 ... 2 mean - 1, with a fractional mean."""
    most = 2 * mean - 1
    return jnp.maximum(jnp.ceil(random.uniform(key, (), most.dtype) * most), 1).astype(jnp.int32)


def _adaptation(search: Callable[..., Any]) -> Callable[[FlatDensity], Any]:
    """Return one of BlackJAX's adaptations, from a search (density, key, position, num_steps)."""

    def adaptation(density: FlatDensity) -> Any:
        from blackjax.base import AdaptationAlgorithm

        return AdaptationAlgorithm(partial(search, density))

    return adaptation


def _search(
    density: FlatDensity, key: PRNGKey, position: Flat, num_steps: int, *, energy_variance: float
) -> Any:
    """Find scales, step size and L of `MCLMC`."""
    thirds = (1 / 3, 1 / 3, 1 / 3)
    state, found = _unadjusted(density, key, position, num_steps, energy_variance, thirds)
    return (state, found._asdict()), None


def _unadjusted(
    density: FlatDensity, key: PRNGKey, position: Flat, num_steps: int, energy_variance: float,
    fractions: tuple[float, float, float],
) -> tuple[Any, Any]:  # fmt: skip
    """Return the state and the settings of BlackJAX's search.

    The fractions of the steps are for burn-in, scales, and L; L is sqrt(d) if the last is 0.
    """
    import blackjax

    if len(position) < 2:
        raise ValueError(
            "MCLMC, AdjustedMCLMC: the model has one latent value, wanted at least two, because "
            "the momentum moves on a sphere; use numpyro's NUTS"
        )
    key_first, key_search = random.split(key)
    burn_in, scales, length = fractions
    return blackjax.mclmc_find_L_and_step_size(
        blackjax.mclmc.build_kernel(), num_steps, blackjax.mclmc.init(position, density, key_first),
        key_search, logdensity_fn=density, frac_tune1=burn_in, frac_tune2=scales,
        frac_tune3=length, desired_energy_var=energy_variance,
    )[:2]  # fmt: skip


def _adjusted_search(
    density: FlatDensity, key: PRNGKey, position: Flat, num_steps: int, *, target: float
) -> Any:
    """Find scales, step size and L of `AdjustedMCLMC`.

    BlackJAX's own search, ``adjusted_mclmc_find_L_and_step_size``, fixes the number of steps of a
    trajectory. On Gaussians whose covariance has a random basis that made 6 times fewer effective
    draws per gradient or worse (`benchmarks/results/mclmc-tuning.json`), so L is found here.
    """
    import blackjax
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    key_scales, key_first, key_short, key_long = random.split(key, 4)
    # Steps without adjustment cost far less than trajectories, so there are more of them.
    unadjusted, found = _unadjusted(
        density, key_scales, position, 4 * num_steps, 5e-4, (0.25, 0.55, 0.0)
    )
    scales = found.inverse_mass_matrix
    begin, update, final = dual_averaging_adaptation(target=target)

    def moved(state: Any, search: Any, L: Array, key: PRNGKey, num: int) -> Any:
        """Make steps whose size follows the search; also return their positions [num, d]."""

        def step(carry: Any, key: PRNGKey) -> Any:
            state, search = carry
            algorithm = _adjusted(density, L, jnp.exp(search.log_step_size), scales)
            state, info = algorithm.step(key, state)
            return (state, update(search, info.acceptance_rate)), state.position

        return lax.scan(step, (state, search), random.split(key, num))

    # A quarter of the circle on which draws of a Gaussian move around its mean.
    L = 0.5 * jnp.pi * jnp.sqrt(jnp.asarray(len(position), position.dtype))
    state = blackjax.adjusted_mclmc_dynamic.init(unadjusted.position, density, key_first)
    half = num_steps // 2
    (state, search), draws = moved(state, begin(found.step_size), L, key_short, half)
    # Trajectories that are too short walk at random, and the autocorrelation time falls with the
    # square of their length.
    kept = draws[half // 4 :]
    time = len(kept) / blackjax.diagnostics.effective_sample_size(kept[None])
    stretch = jnp.clip(jnp.sqrt(jnp.mean(time)), 1 / _MOST_STRETCH, _MOST_STRETCH)
    L = L * jnp.where(jnp.isfinite(stretch), stretch, 1)
    (state, search), _ = moved(state, search, L, key_long, num_steps - half)
    settings = {"L": L, "step_size": final(search), "inverse_mass_matrix": scales}
    return (state, settings), None
