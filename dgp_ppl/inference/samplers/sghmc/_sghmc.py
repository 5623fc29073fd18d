"""Stochastic-gradient Hamiltonian Monte Carlo, a kernel for NumPyro's `MCMC`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro.infer.initialization import init_to_median
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key, not_jax_tracer

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.inference.samplers._potential import Energy, Potential
from dgp_ppl.inference.samplers.sghmc._adaptation import Adaptation, Preconditioner, Warmup
from dgp_ppl.inference.samplers.sghmc._directions import Directions
from dgp_ppl.inference.samplers.sghmc._dynamics import Dynamics, Flat, Integrator

__all__ = ["SGHMC", "SGHMCState"]

_MOST_DENSE = 2000  # latent values with [d, d] matrices
_HOT = 3.0  # a temperature above this, and beyond chance, is a divergence


class SGHMCState(NamedTuple):
    """The state of a chain."""

    i: Array  # steps done
    z: Values  # values of the latent sites
    unconstrained: Values  # the same values without bounds; these move
    momentum: Flat  # in units of its stationary standard deviation, [d]
    adaptation: Adaptation  # what warm-up has learned
    directions: Directions  # what the chain moves along
    potential_energy: Array  # estimate by the step's minibatch, in nats
    # Mean square of the momentum halfway through the kick, whose expectation is 1.
    temperature: Array
    step_size: Array  # the kernel's, relative to the scale of each coordinate
    # Whether the gradient was not finite or the momentum far too large: the chain then stayed.
    diverging: Array
    num_warmup: Array  # steps of warm-up
    rng_key: PRNGKey  # random key


class SGHMC(MCMCKernel):
    """Stochastic-gradient HMC (Chen et al. 2014) with a step size for each coordinate.

    Samples any NumPyro model. Every step draws new minibatches of the model's plates and new values
    of its auxiliary sites (the unit noise of hidden layers)::

        mcmc = MCMC(dgp.SGHMC(model), num_warmup=2000, num_samples=5000, thinning=50)
        mcmc.run(key, x, y, z=z, batch_size=1000)

    Warm-up takes at least 500 steps, or 2,000 with small minibatches. Check that ``temperature``
    averages 1 and R-hat is small; `run_mcmc` warns. Sample a deep GP in the reference space of
    a `GlobalInducing` fit (`transported`), where v mixes.

    Args:
        model: a NumPyro model.
        step_size: relative to the scale of each coordinate.
        friction: fraction of the momentum that a step removes, in (0, 1]; best at one to two
            `step_size`.
        preconditioner: "variance" (steps proportional to E[g²]^(-1/2)), "dense" (along directions
            with uncorrelated gradient noise; at most 2,000 values), "rms" (E[g²]^(-1/4)), or None.
        integrator: "baoab", or "euler" as published.
        correct_noise: reduce the injected noise by the gradient's ("baoab" only).
        num_steps: gradient steps per step of `MCMC`.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_median`.

    Raises:
        TypeError: if `num_steps` is not an integer.
        ValueError: if an option has another value; in `init`, if the model has discrete or no
            latent sites, ``init_params`` do not fit, or the energy or its gradient is not finite.
    """

    _sample_fn = None
    needs_init = False  # the state holds all that the kernel learns

    def __init__(
        self,
        model: Model,
        *,
        step_size: float = 0.2,
        friction: float = 0.2,
        preconditioner: Preconditioner = "variance",
        integrator: Integrator = "baoab",
        correct_noise: bool = True,
        num_steps: int = 1,
        init_strategy: Callable[[Any], Any] | None = None,
    ) -> None:
        if not (math.isfinite(step_size) and step_size > 0):
            raise ValueError(f"SGHMC: step_size is {step_size}, wanted a positive number")
        if not 0 < friction <= 1:
            raise ValueError(f"SGHMC: friction is {friction}, wanted in (0, 1]")
        for name, value, wanted in (
            ("preconditioner", preconditioner, ("variance", "dense", "rms", None)),
            ("integrator", integrator, ("baoab", "euler")),
        ):
            if value not in wanted:
                raise ValueError(
                    f"SGHMC: {name} is {value!r}, wanted {' or '.join(map(repr, wanted))}"
                )
        if preconditioner == "dense" and integrator != "baoab":
            raise ValueError(
                f"SGHMC: integrator is {integrator!r}, wanted 'baoab' with preconditioner='dense'; "
                "the published methods have one step size for each coordinate: try 'rms'"
            )
        check_count("SGHMC", "num_steps", num_steps)
        self._model, self.potential = model, Potential(model)
        self.step_size, self.friction, self.preconditioner = step_size, friction, preconditioner
        self.integrator, self.num_steps = integrator, num_steps
        self.init_strategy = init_to_median if init_strategy is None else init_strategy
        self.correct_noise = correct_noise and integrator == "baoab"
        self._dynamics = Dynamics(friction, integrator)
        self._warmup = Warmup(friction, preconditioner, integrator, self.correct_noise)

    @property
    def model(self) -> Model:
        return self._model

    @property
    def sample_field(self) -> str:
        return "z"

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("z", "diverging")

    def get_diagnostics_str(self, state: SGHMCState) -> str:
        return f"step size {state.step_size:.2g}, temperature {state.temperature:.2f}"

    def postprocess_fn(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Values], Values]:
        """Return a function that adds the model's deterministic sites to a draw."""
        deterministic = self.potential.deterministic(Call(args, kwargs))
        return lambda latents: latents | deterministic(latents)

    def init(
        self,
        rng_key: PRNGKey,
        num_warmup: int,
        init_params: Values | None,
        model_args: tuple[Any, ...],
        model_kwargs: dict[str, Any],
    ) -> SGHMCState:
        """Return the first state; `init_params` has unconstrained values of some or all sites."""
        call = Call(model_args, model_kwargs)

        def one(key: PRNGKey, given: Values | None) -> SGHMCState:
            return self._init_chain(key, num_warmup, given or {}, call)

        if is_prng_key(rng_key):
            state = one(rng_key, init_params)
        else:
            chains = {n: jnp.shape(a)[:1] for n, a in (init_params or {}).items()}
            if wrong := [n for n, a in chains.items() if a != (len(rng_key),)]:
                raise ValueError(
                    f"SGHMC: init_params has {wrong} of leading sizes "
                    f"{[chains[n] for n in wrong]}, wanted {len(rng_key)}: a value for each chain"
                )
            state = jax.vmap(one)(rng_key, init_params)
        if not_jax_tracer(state.potential_energy):
            self._check_finite(rng_key, state, call)
        return state

    def sample(
        self, state: SGHMCState, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> SGHMCState:
        """Make `num_steps` steps; ``diverging`` is set if any of them diverges."""
        call = Call(model_args, model_kwargs)

        each = (lambda f: f) if is_prng_key(state.rng_key) else jax.vmap

        def step(_: Any, state: SGHMCState) -> SGHMCState:
            new = each(lambda s: self._step(s, call))(self._with_directions(state, each))
            new = self._with_averages(state, new, each)
            return new._replace(diverging=state.diverging | new.diverging)

        fresh = state._replace(diverging=jnp.zeros_like(state.diverging))
        return lax.fori_loop(0, self.num_steps, step, fresh)

    # Work with [d, d] matrices is for few steps of warm-up. Under `vmap` a condition that differs
    # between chains would do it in every step, so these two functions take all chains.

    def _with_directions(self, state: SGHMCState, each: Callable[..., Any]) -> SGHMCState:
        """Return the state with the directions that warm-up has found, where they are due."""
        if not state.directions.dense:
            return state

        def found(state: SGHMCState) -> SGHMCState:
            phase = self._warmup.phase(state.i, state.num_warmup)
            directions, adaptation = state.directions.found(state.adaptation, phase)
            return state._replace(directions=directions, adaptation=adaptation)

        due = self._warmup.phase(state.i, state.num_warmup).concluding
        return lax.cond(jnp.all(due), each(found), lambda state: state, state)

    def _with_averages(
        self, old: SGHMCState, new: SGHMCState, each: Callable[..., Any]
    ) -> SGHMCState:
        """Return the new state with the step's gradient in the averages of the directions."""
        if not new.directions.dense:
            return new

        def averaged(old: SGHMCState, new: SGHMCState) -> Directions:
            phase = self._warmup.phase(old.i, old.num_warmup)
            gradient = new.adaptation.last_gradients[0]
            after = new.directions.averaged(phase, gradient, old.adaptation.last_gradients)
            return jax.tree.map(lambda a, b: jnp.where(new.diverging, b, a), after, new.directions)

        wanted = self._warmup.phase(old.i, old.num_warmup).estimating
        directions = lax.cond(
            jnp.all(wanted), each(averaged), lambda _, new: new.directions, old, new
        )
        return new._replace(directions=directions)

    def _init_chain(self, key: PRNGKey, num_warmup: int, given: Values, call: Call) -> SGHMCState:
        key, key_start, key_gradient, _, key_momentum = _init_keys(key)
        unconstrained = self._init_values(key_start, given, call)
        flat = ravel_pytree(unconstrained)[0]
        dense = self.preconditioner == "dense"
        if dense and len(flat) > _MOST_DENSE:
            raise ValueError(
                f"SGHMC: the model has {len(flat)} latent values, wanted at most {_MOST_DENSE} "
                "with preconditioner='dense', which keeps square matrices of them; use 'variance', "
                "in the reference space of a fit (dgp_ppl.transported) if the model has layers"
            )

        @jax.jit  # NumPyro's MCMC calls `init` uncompiled
        def first(unconstrained: Values) -> tuple[Energy, Flat]:
            return self._gradient(key_gradient, unconstrained, call)

        energy, gradient = first(unconstrained)
        return SGHMCState(
            i=jnp.zeros((), jnp.int32),
            z=energy.latents,
            unconstrained=unconstrained,
            momentum=random.normal(key_momentum, flat.shape, flat.dtype),
            adaptation=self._warmup.init(gradient),
            directions=Directions.init(gradient, dense),
            potential_energy=energy.value,
            temperature=jnp.ones((), flat.dtype),
            step_size=jnp.asarray(self.step_size, flat.dtype),
            diverging=jnp.zeros((), bool),
            num_warmup=jnp.asarray(num_warmup * self.num_steps, jnp.int32),
            rng_key=key,
        )

    def _init_values(self, key: PRNGKey, given: Values, call: Call) -> Values:
        values = self.potential.start(key, self.init_strategy, call)
        shapes = {n: a.shape for n, a in values.items()}
        wrong = {n: jnp.shape(a) for n, a in given.items() if shapes.get(n) != jnp.shape(a)}
        if wrong:
            raise ValueError(
                f"SGHMC: init_params has {wrong}, wanted unconstrained values of latent sites of "
                f"these shapes (with several chains a leading axis for each): {shapes}"
            )
        return values | {n: jnp.asarray(a, values[n].dtype) for n, a in given.items()}

    def _check_finite(self, key: PRNGKey, state: SGHMCState, call: Call) -> None:
        gradient, values = state.adaptation.mean, state.unconstrained
        finite = jnp.isfinite(state.potential_energy) & jnp.isfinite(gradient).all(axis=-1)
        if finite.all():
            return
        which = ""
        if jnp.ndim(finite):
            chains = jnp.flatnonzero(~finite).tolist()
            which = f" of chains {chains}"
            key, gradient, values = jax.tree.map(lambda a: a[chains[0]], (key, gradient, values))
        sites = jax.jit(lambda k, u: self.potential(k, u, call))(
            _init_keys(key)[2], values
        ).not_finite()
        slopes = ravel_pytree(values)[1](gradient)
        steep = [n for n, a in slopes.items() if not jnp.isfinite(a).all()]
        raise ValueError(
            f"SGHMC: the potential energy or its gradient is not finite at the start{which}: the "
            f"log densities {sites}; the gradients of {steep}. Look for NaN in the data, or start "
            "elsewhere: init_params (unconstrained values), or another init_strategy"
        )

    def _step(self, state: SGHMCState, call: Call) -> SGHMCState:
        key, key_noise, key_gradient = random.split(state.rng_key, 3)
        position, unravel = ravel_pytree(state.unconstrained)
        size = jnp.asarray(self.step_size, state.momentum.dtype)
        phase = self._warmup.phase(state.i, state.num_warmup)
        scale, removed = self._warmup.scales(state.adaptation, phase, size)
        noise = random.normal(key_noise, state.momentum.shape, state.momentum.dtype)

        directions = state.directions

        def gradient_at(q: Flat) -> tuple[Flat, tuple[Values, Energy]]:
            values = unravel(directions.values(position, q))
            energy, gradient = self._gradient(key_gradient, values, call)
            clipped = self._warmup.clipped(state.adaptation, phase, gradient)
            return directions.slope(clipped), (values, energy)

        new = self._dynamics.step(
            directions.start(position), state.momentum, noise, scale, removed, gradient_at
        )
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

    def _gradient(self, key: PRNGKey, unconstrained: Values, call: Call) -> tuple[Energy, Flat]:
        """Estimate the energy and its gradient, [d]."""

        def energy(u: Values) -> tuple[Array, Energy]:
            estimate = self.potential(key, u, call)
            return estimate.value, estimate

        (_, estimate), gradient = jax.value_and_grad(energy, has_aux=True)(unconstrained)
        return estimate, ravel_pytree(gradient)[0]


def _init_keys(key: PRNGKey) -> Array:
    """Return keys of the steps, the first values, gradient, nothing, and the first momentum."""
    return random.split(key, 5)  # the fourth is left out, so that draws of version 0.2 stay
