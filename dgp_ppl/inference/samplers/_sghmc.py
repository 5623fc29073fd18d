"""Stochastic-gradient Hamiltonian Monte Carlo, a kernel for NumPyro's `MCMC`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.initialization import init_to_median

from dgp_ppl._checks import check_choice, check_flags, check_positive
from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.core._minibatch import whole_plates
from dgp_ppl.inference.samplers._dynamics import Flat, Integrator, langevin_step
from dgp_ppl.inference.samplers._kernel import ModelKernel, each_of
from dgp_ppl.inference.samplers._potential import Energy
from dgp_ppl.inference.samplers._warmup import Adaptation, Preconditioner, Warmup

_HOT = 3.0  # a temperature above this, and beyond chance, is a divergence


class SGHMCState(NamedTuple):
    """The state of a chain."""

    i: Array  # steps done
    z: Values  # values of the latent sites
    unconstrained: Values  # the same values without bounds; these move
    momentum: Flat  # in units of its stationary standard deviation, [d]
    adaptation: Adaptation  # what warm-up has learned
    potential_energy: Array  # estimate by the step's minibatch, in nats
    # Mean square of the momentum halfway through the kick, whose expectation is 1.
    temperature: Array
    step_size: Array  # the kernel's, relative to the scale of each coordinate
    # Whether the gradient was not finite or the momentum far too large: the chain then stayed.
    diverging: Array
    num_warmup: Array  # steps of warm-up
    rng_key: PRNGKey  # random key


class SGHMC(ModelKernel):
    """Stochastic-gradient HMC (Chen et al. 2014) with a step size for each coordinate.

    Samples any NumPyro model. Every step draws new minibatches of the model's plates and new values
    of its auxiliary sites (the unit noise of hidden layers)::

        mcmc = MCMC(dgp.SGHMC(model), num_warmup=2000, num_samples=5000, thinning=50)
        mcmc.run(key, x, y, z=z, batch_size=1000)

    Warm-up takes at least 500 steps, or 2,000 with small minibatches. Check that ``temperature``
    averages 1, of which `run_mcmc` warns, and that R-hat is small: `check_fit` and
    `criticism.chain_diagnostics` say so. Sample a deep GP in the reference space of a
    `GlobalInducing` fit (`transported`), where v mixes.

    Args:
        model: a NumPyro model.
        step_size: relative to the scale of each coordinate.
        friction: fraction of the momentum that a step removes, in (0, 1]; best at one to two
            `step_size`.
        preconditioner: "variance" (steps proportional to E[g²]^(-1/2)), "rms" (E[g²]^(-1/4)), or
            None.
        integrator: "baoab", or "euler" as published.
        correct_noise: reduce the injected noise by the gradient's ("baoab" only).
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_median`.

    Raises:
        ValueError: if an option has another value; in `init`, if the model has discrete or no
            latent sites, ``init_params`` do not fit, or the energy or its gradient is not finite.
    """

    estimates = True

    default_fields: Any = ("z", "diverging", "temperature")

    def __init__(
        self,
        model: Model,
        *,
        step_size: float = 0.2,
        friction: float = 0.2,
        preconditioner: Preconditioner = "variance",
        integrator: Integrator = "baoab",
        correct_noise: bool = True,
        init_strategy: Callable[[Any], Any] | None = None,
    ) -> None:
        check_positive("SGHMC", "step_size", step_size)
        check_positive("SGHMC", "friction", friction, 1)
        check_choice("SGHMC", "preconditioner", preconditioner, ("variance", "rms", None))
        check_flags("SGHMC", correct_noise=correct_noise)
        check_choice("SGHMC", "integrator", integrator, ("baoab", "euler"))
        super().__init__(model, init_to_median if init_strategy is None else init_strategy)
        self.step_size, self.friction = step_size, friction
        self.preconditioner: Preconditioner = preconditioner
        self.integrator: Integrator = integrator
        self.correct_noise = correct_noise and integrator == "baoab"
        self._warmup = Warmup(friction, preconditioner, integrator, self.correct_noise)

    def get_diagnostics_str(self, state: SGHMCState) -> str:
        return f"step size {state.step_size:.2g}, temperature {state.temperature:.2f}"

    def postprocess_fn(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Values], Values]:
        """Return a function that adds the model's deterministic sites to a draw."""
        deterministic = self.potential.deterministic(Call(args, kwargs))
        return lambda latents: latents | deterministic(latents)

    def _first_states(
        self, key: PRNGKey, num_warmup: int, given: Values, empty: Values, call: Call
    ) -> SGHMCState:
        def one(key: PRNGKey, given: Values) -> tuple[SGHMCState, PRNGKey]:
            # The fourth key is left out, so that draws of version 0.2 stay.
            key, key_start, key_gradient, _, key_momentum = random.split(key, 5)
            unconstrained = self._run("_start", call, key_start, empty) | given
            energy, gradient = self._run("_gradient", call, key_gradient, unconstrained)
            flat = ravel_pytree(unconstrained)[0]
            state = SGHMCState(
                i=jnp.zeros((), jnp.int32),
                z=energy.latents,
                unconstrained=unconstrained,
                momentum=random.normal(key_momentum, flat.shape, flat.dtype),
                adaptation=self._warmup.init(gradient),
                potential_energy=energy.value,
                temperature=jnp.ones((), flat.dtype),
                step_size=jnp.asarray(self.step_size, flat.dtype),
                diverging=jnp.zeros((), bool),
                num_warmup=jnp.asarray(num_warmup, jnp.int32),
                rng_key=key,
            )
            return state, key_gradient

        state, keys = each_of(key)(one)(key, given)
        sound = jnp.isfinite(state.potential_energy)
        sound &= jnp.isfinite(state.adaptation.mean).all(axis=-1)
        self._check_finite(sound, keys, state.unconstrained, call)
        return state

    def _start(self, call: Call, key: PRNGKey, empty: Values) -> Values:
        """Return unconstrained values of the latent sites by the strategy."""
        seeded = handlers.seed(whole_plates(self.potential.program), key)
        program = handlers.substitute(seeded, substitute_fn=self.init_strategy)
        with alone():
            sites = handlers.trace(program).get_trace(*call.args, **call.kwargs)
        return {n: biject_to(sites[n]["fn"].support).inv(sites[n]["value"]) for n in empty}

    def sample(
        self, state: SGHMCState, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> SGHMCState:
        """Make one step of each chain."""
        call = Call(model_args, model_kwargs)
        return each_of(state.rng_key)(lambda s: self._step(s, call))(state)

    def _step(self, state: SGHMCState, call: Call) -> SGHMCState:
        key, key_noise, key_gradient = random.split(state.rng_key, 3)
        position, unravel = ravel_pytree(state.unconstrained)
        size = jnp.asarray(self.step_size, state.momentum.dtype)
        phase = self._warmup.phase(state.i, state.num_warmup)
        scale, removed = self._warmup.scales(state.adaptation, phase, size)
        noise = random.normal(key_noise, state.momentum.shape, state.momentum.dtype)

        def gradient_at(x: Flat) -> tuple[Flat, tuple[Values, Energy]]:
            values = unravel(x)
            energy, gradient = self._gradient(call, key_gradient, values)
            return self._warmup.clipped(state.adaptation, phase, gradient), (values, energy)

        new = langevin_step(
            self.integrator, self.friction, position, state.momentum, noise, scale, removed,
            gradient_at,
        )  # fmt: skip
        unconstrained, energy = new.aux
        hot = new.temperature > max(_HOT, 1 + 30 * math.sqrt(2 / len(position)))
        finite = jnp.isfinite(energy.value) & jnp.all(jnp.isfinite(new.gradient))
        sound = finite & ~(hot & ~phase.searching)
        moved = state._replace(
            z=energy.latents,
            unconstrained=unconstrained,
            momentum=new.momentum,
            adaptation=self._warmup.moved(state.adaptation, phase, new.gradient, new.temperature),
            potential_energy=energy.value,
            temperature=new.temperature,
        )
        rejected = self._warmup.rejected(state.adaptation, phase)
        stayed = state._replace(momentum=noise, adaptation=rejected)
        kept = jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, stayed)
        return kept._replace(i=state.i + 1, step_size=size, diverging=~sound, rng_key=key)

    def _gradient(self, call: Call, key: PRNGKey, unconstrained: Values) -> tuple[Energy, Flat]:
        """Estimate the energy and its gradient, [d]."""

        def energy(u: Values) -> tuple[Array, Energy]:
            estimate = self.potential(key, u, call)
            return estimate.value, estimate

        (_, estimate), gradient = jax.value_and_grad(energy, has_aux=True)(unconstrained)
        return estimate, ravel_pytree(gradient)[0]
