"""The adjusted microcanonical sampler: BlackJAX's steps, with the rules of their warm-up."""

from __future__ import annotations

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

_MOST_STEPS = 1024.0  # of a trajectory, on average
_MOST_STRETCH = 4.0  # of the length of trajectories


class AdjustedMCLMC(BlackJAXKernel):
    """Metropolis-adjusted microcanonical sampling (Robnik et al. 2025), for NumPyro's `MCMC`.

    A step draws a direction, moves at constant speed along a path that the gradient bends, over a
    random distance with mean L, and accepts its end with a probability that leaves the posterior
    invariant. Draws have no bias once the chain has converged::

        mcmc = MCMC(dgp.AdjustedMCLMC(model), num_warmup=500, num_samples=1000)
        mcmc.run(key, x, y, z=z)

    BlackJAX makes the steps (``pip install dgp_ppl[blackjax]``). A search of `num_warmup` steps (at
    least 500) finds a scale for each coordinate, the step size and L before NumPyro's warm-up.
    Unit noise of hidden layers is latent, as for NumPyro's NUTS. Steps without adjustment
    (Robnik & Seljak 2024) are biased: `BlackJAXKernel` with ``blackjax.mclmc`` makes them.

    Args:
        model: a NumPyro model with at least two latent values, all continuous, and no minibatches.
        target_accept_prob: mean acceptance probability for which warm-up searches the step size.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        ImportError: if BlackJAX is not installed.
        ValueError: if `target_accept_prob` is out of range; in `init`, as in `BlackJAXKernel`, or
            if the model has fewer than two latent values.
    """

    default_fields: Any = ("z", "diverging", "accept_prob")

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
        search = partial(_adaptation, target=target_accept_prob)
        super().__init__(model, _adjusted, adaptation=search, init_strategy=init_strategy)


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


def _adaptation(density: FlatDensity, target: float) -> Any:
    from blackjax.base import AdaptationAlgorithm

    search: Any = partial(_search, density, target=target)
    return AdaptationAlgorithm(search)


def _search(
    density: FlatDensity, key: PRNGKey, position: Flat, num_steps: int, *, target: float
) -> Any:
    """Find scales, step size and L of `AdjustedMCLMC`.

    BlackJAX's own search, ``adjusted_mclmc_find_L_and_step_size``, fixes the number of steps of a
    trajectory. On Gaussians whose covariance has a random basis that made 6 times fewer effective
    draws per gradient or worse (`benchmarks/results/mclmc-tuning.json`), so L is found here.
    """
    import blackjax
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    if len(position) < 2:
        raise ValueError(
            "AdjustedMCLMC: the model has one latent value, wanted at least two, because the "
            "momentum moves on a sphere; use numpyro's NUTS"
        )
    key_scales, key_first, key_short, key_long = random.split(key, 4)
    key_start, key_unadjusted = random.split(key_scales)
    # Steps without adjustment cost far less than trajectories, so there are more of them.
    find: Any = blackjax.mclmc_find_L_and_step_size
    unadjusted, found, *_ = find(
        blackjax.mclmc.build_kernel(), 4 * num_steps,
        blackjax.mclmc.init(position, density, key_start), key_unadjusted, logdensity_fn=density,
        frac_tune1=0.25, frac_tune2=0.55, frac_tune3=0.0, desired_energy_var=5e-4,
    )  # fmt: skip
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
