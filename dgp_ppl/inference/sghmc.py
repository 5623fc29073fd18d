"""Stochastic-gradient Hamiltonian Monte Carlo, a kernel for NumPyro's `MCMC`."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro.infer.initialization import init_to_median
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.inference.potential import Energy, Potential, Values
from dgp_ppl.inference.sghmc_state import Adaptation, Flat, SGHMCState

__all__ = ["SGHMC", "SGHMCState"]


Preconditioner = Literal["variance", "rms"] | None

_BURN_IN_STEP = 0.02  # of the first half of warm-up, whose moves are an optimiser's
_TRIAL = 100  # steps after which a trial's temperature is judged
_TOLERANCE = 0.05  # of it, besides chance
_TINY = 1e-30
_ANCHOR_DRAWS = 32  # of the gradient of all rows, where hidden layers are drawn


class SGHMC(MCMCKernel):
    """Stochastic-gradient HMC (Chen et al. 2014), with a scale for each coordinate from warm-up.

    For any NumPyro model: minibatches of its plates are drawn afresh at every step, and so are
    auxiliary sites (the unit noise of hidden layers), so that draws are from exp(E[log p(y, v)]),
    which for deep GPs is Havasi et al. (2018)'s law of v. Hyperparameters that have priors
    (`handlers.lift`) are sampled along. One gradient a step::

        mcmc = MCMC(dgp.SGHMC(model), num_warmup=2000, num_samples=5000, thinning=50)
        mcmc.run(key, x, y, z=z, batch_size=1000)

    A step of size e moves by half a drift, friction and noise, half a drift, and a kick (BAOAB:
    Leimkuhler & Matthews 2013): exact for Gaussians at any e that is stable, where the published
    Euler steps are not. What the minibatch's noise adds to the momentum is taken out of the noise
    that is put in, evenly about the drift: exact for Gaussians too if that noise is as it was in
    warm-up. Its variance is known from the gradient's second differences, without a second
    gradient; beyond e = 0.5 they see the chain's own bends too, and the chain comes out too narrow.

    Each coordinate's e² is multiplied by 1 / E[g²] of its gradient g ("variance": the inverse of
    the Fisher information's diagonal, so that narrow and wide directions move alike). Published
    adaptive SGHMC (Springenberg et al. 2016) multiplies by 1 / sqrt(E[g²]), which is slow in wide
    directions: ``SGHMC(model, step_size=0.01, friction=0.05, preconditioner="rms",
    integrator="euler", correct_noise=False)`` is Havasi et al. (2018). With ``friction=1``,
    ``preconditioner=None`` and ``integrator="euler"`` it is SGLD (Welling & Teh 2011) with steps of
    e².

    Warm-up: with "variance" the first half goes by "rms" in steps of 0.02, which find the typical
    set from anywhere; then the averages are taken anew. In its last quarter they are as they will
    be, and steps that the momentum's temperature shows to be unstable (where very many coordinates
    depend on each other) are made shorter. Nothing is adapted after warm-up. Extra
    fields: ``potential_energy``, ``temperature`` (the momentum's; far from 1 means steps too
    large), ``step_size``, ``diverging``.

    Args:
        model: a NumPyro model.
        step_size: e.
        friction: share a of the momentum that is lost in a step, in (0, 1]. Movement is fastest
            where a is about e to twice e, slower with noisier gradients.
        preconditioner: "variance", "rms", or None for e² alone.
        integrator: "baoab", or "euler" as published.
        correct_noise: whether the gradient's noise is corrected for (with "baoab"); coordinates
            whose noise it would take more than half of get shorter steps.
        control_variates: gradients are those of all rows at the start of the chain, plus the
            minibatch's difference to there (Baker et al. 2019); twice the cost. Start at a fit
            (``init_params``).
        cycle: steps of a cycle within which e falls to a tenth along a cosine and then jumps back
            (after Zhang et al. 2020, with noise all along: every draw is one); None keeps e.
        init_strategy: NumPyro's, for sites that ``init_params`` leaves out.

    Raises:
        ValueError: for other options than these; in `init`, if the model has discrete latent sites
            or none, or ``init_params`` do not fit.
    """

    _sample_fn = None
    needs_init = False  # all that it knows is in its state

    def __init__(
        self,
        model: Model,
        *,
        step_size: float = 0.2,
        friction: float = 0.2,
        preconditioner: Preconditioner = "variance",
        integrator: Literal["baoab", "euler"] = "baoab",
        correct_noise: bool = True,
        control_variates: bool = False,
        cycle: int | None = None,
        init_strategy: Callable[[Any], Any] = init_to_median,
    ) -> None:
        if not (math.isfinite(step_size) and step_size > 0):
            raise ValueError(f"SGHMC: step_size is {step_size}, wanted a positive number")
        if not 0 < friction <= 1:
            raise ValueError(f"SGHMC: friction is {friction}, wanted in (0, 1]")
        for name, value, wanted in (
            ("preconditioner", preconditioner, ("variance", "rms", None)),
            ("integrator", integrator, ("baoab", "euler")),
        ):
            if value not in wanted:
                raise ValueError(
                    f"SGHMC: {name} is {value!r}, wanted {' or '.join(map(repr, wanted))}"
                )
        if cycle is not None and cycle < 2:
            raise ValueError(f"SGHMC: cycle is {cycle}, wanted at least 2 steps, or None")
        self._model, self.potential = model, Potential(model)
        self.step_size, self.friction, self.preconditioner = step_size, friction, preconditioner
        self.integrator, self.cycle, self.init_strategy = integrator, cycle, init_strategy
        self.correct_noise = correct_noise and integrator == "baoab"
        self.control_variates = control_variates

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
        """Adds the model's deterministic sites to draws that are kept."""
        found = self.potential.deterministic(args, kwargs)
        return lambda latents: latents | found(latents)

    def init(
        self,
        rng_key: PRNGKey,
        num_warmup: int,
        init_params: Values | None,
        model_args: tuple[Any, ...],
        model_kwargs: dict[str, Any],
    ) -> SGHMCState:
        """The first state; `init_params` are unconstrained values, of all latent sites or some."""

        def one(key: PRNGKey, given: Values | None) -> SGHMCState:
            return self._first(key, num_warmup, given or {}, model_args, model_kwargs)

        if is_prng_key(rng_key):
            return one(rng_key, init_params)
        chains = {n: jnp.shape(a)[:1] for n, a in (init_params or {}).items()}
        if wrong := [n for n, a in chains.items() if a != (len(rng_key),)]:
            raise ValueError(
                f"SGHMC: init_params has {wrong} of leading sizes {[chains[n] for n in wrong]}, "
                f"wanted {len(rng_key)}: a value for each chain"
            )
        return jax.vmap(one)(rng_key, init_params)

    def sample(
        self, state: SGHMCState, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> SGHMCState:
        """One step."""

        def one(state: SGHMCState) -> SGHMCState:
            return self._step(state, model_args, model_kwargs)

        return one(state) if is_prng_key(state.rng_key) else jax.vmap(one)(state)

    def _first(
        self,
        key: PRNGKey,
        num_warmup: int,
        given: Values,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> SGHMCState:
        key, key_start, key_gradient, key_all, key_momentum = random.split(key, 5)
        unconstrained = self._start(key_start, given, args, kwargs)
        flat = ravel_pytree(unconstrained)[0]

        @jax.jit  # NumPyro's MCMC calls `init` uncompiled
        def look(unconstrained: Values) -> tuple[Array, Energy, Flat]:
            anchor = jnp.zeros((2, 0), flat.dtype)
            if self.control_variates:
                whole = lambda k: self._gradient(k, unconstrained, args, kwargs, all_rows=True)[1]  # noqa: E731
                keys = random.split(key_all, _ANCHOR_DRAWS)
                anchor = jnp.stack([flat, jnp.mean(lax.map(whole, keys), axis=0)])
            return anchor, *self._estimate(key_gradient, unconstrained, anchor, args, kwargs)

        anchor, energy, gradient = look(unconstrained)
        adaptation = Adaptation(
            window=jnp.ones_like(flat),
            mean=gradient,
            # No huge first step where the first gradient is small: latents are of order 1.
            square=1 + jnp.square(gradient) + jnp.mean(jnp.square(gradient)),
            noise=jnp.zeros_like(flat),
            share=jnp.ones((), flat.dtype),
            trial=jnp.zeros((), jnp.int32),
            heat=jnp.zeros((), flat.dtype),
            last=jnp.stack([gradient, gradient]),
        )
        return SGHMCState(
            i=jnp.zeros((), jnp.int32),
            z=energy.latents,
            unconstrained=unconstrained,
            momentum=random.normal(key_momentum, flat.shape, flat.dtype),
            adaptation=adaptation,
            anchor=anchor,
            potential_energy=energy.value,
            temperature=jnp.ones((), flat.dtype),
            step_size=jnp.asarray(self.step_size, flat.dtype),
            diverging=jnp.zeros((), bool),
            num_warmup=jnp.asarray(num_warmup, jnp.int32),
            rng_key=key,
        )

    def _start(
        self, key: PRNGKey, given: Values, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Values:
        values = self.potential.start(key, self.init_strategy, args, kwargs)
        shapes = {n: a.shape for n, a in values.items()}
        wrong = {n: jnp.shape(a) for n, a in given.items() if shapes.get(n) != jnp.shape(a)}
        if wrong:
            raise ValueError(
                f"SGHMC: init_params has {wrong}, wanted unconstrained values of latent sites of "
                f"these shapes (with several chains a leading axis for each): {shapes}"
            )
        return values | {n: jnp.asarray(a, values[n].dtype) for n, a in given.items()}

    def _step(self, state: SGHMCState, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SGHMCState:
        key, key_noise, key_gradient = random.split(state.rng_key, 3)
        x, unravel = ravel_pytree(state.unconstrained)
        size = self._size(state)
        scale, removed = self._scales(state, size)
        r, c = state.momentum, 1 - self.friction
        noise = random.normal(key_noise, r.shape, r.dtype)
        if self.integrator == "baoab":
            x = x + 0.5 * scale * r
            r = c * r + jnp.sqrt(1 - c**2 - removed) * noise
            x = x + 0.5 * scale * r
        else:
            x = x + scale * r
        unconstrained = unravel(x)
        energy, gradient = self._estimate(key_gradient, unconstrained, state.anchor, args, kwargs)
        kick = scale * gradient
        middle = r - 0.5 * kick
        r = (
            r - kick
            if self.integrator == "baoab"
            else (c * r - kick + math.sqrt(2 * self.friction) * noise)
        )
        temperature = jnp.mean(jnp.square(middle))
        hot = temperature > max(3.0, 1 + 30 * math.sqrt(2 / len(middle)))
        finite = jnp.isfinite(energy.value) & jnp.all(jnp.isfinite(gradient))
        sound = finite & ~(hot & ~self._burning_in(state))
        moved = state._replace(
            z=energy.latents,
            unconstrained=unconstrained,
            momentum=r,
            adaptation=self._tried(state, self._adapted(state, gradient), temperature),
            potential_energy=energy.value,
            temperature=temperature,
        )
        cooled = self._tried(state, state.adaptation, jnp.full_like(temperature, jnp.inf))
        stayed = state._replace(momentum=noise, adaptation=cooled)
        kept = jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, stayed)
        return kept._replace(i=state.i + 1, step_size=size, diverging=~sound, rng_key=key)

    def _size(self, state: SGHMCState) -> Array:
        """The step's size: a tenth of it at the end of a cycle."""
        size = jnp.asarray(self.step_size, state.momentum.dtype)
        if self.cycle is None:
            return size
        done = (jnp.maximum(state.i - state.num_warmup, 0) % self.cycle) / self.cycle
        return size * (0.1 + 0.9 * 0.5 * (1 + jnp.cos(jnp.pi * done)))

    def _burning_in(self, state: SGHMCState) -> Array:
        return (self.preconditioner == "variance") & (2 * state.i < state.num_warmup)

    def _scales(self, state: SGHMCState, size: Array) -> tuple[Flat, Flat]:
        """Of each coordinate: sqrt(h), h its step squared; what is left out of the noise put in.

        Gradient noise of variance V adds h V to the unit variance of the momentum in each kick. For
        it to be 1 on average over the two half drifts it has to be 1 + h V / 2 before the friction
        and 1 - h V / 2 after the noise.
        """
        adaptation, c = state.adaptation, 1 - self.friction
        scale = jnp.full_like(state.momentum, size)
        if self.preconditioner is not None:
            rms = size * adaptation.square**-0.25
            burn_in = _BURN_IN_STEP * adaptation.square**-0.25
            exact = size * adaptation.square**-0.5
            scale = exact if self.preconditioner == "variance" else rms
            scale = jnp.where(self._burning_in(state), burn_in, adaptation.share * scale)
        if not self.correct_noise:
            return scale, jnp.zeros_like(scale)
        share = 0.5 * (1 + c**2) * adaptation.noise
        # No more than half of the noise may come from the gradient.
        scale = jnp.minimum(scale, jnp.sqrt(0.5 * (1 - c**2) / (share + _TINY)))
        return scale, share * jnp.square(scale)

    def _adapted(self, state: SGHMCState, gradient: Flat) -> Adaptation:
        """The averages with a new gradient; as they are after warm-up."""
        old, k = state.adaptation, state.i - state.num_warmup // 2
        # Burn-in forgets by what the gradient says (Springenberg et al. 2016, eq. 9); what comes
        # after it weighs the gradients in proportion to their number.
        adaptive = 1 / (old.window + 1)
        if self.preconditioner == "rms":
            rate = adaptive
        elif self.preconditioner == "variance":
            rate = jnp.where(k < 0, adaptive, 2 / (k + 10))
        else:
            rate = jnp.full_like(gradient, 2 / (state.i + 10))
        bend = gradient - 2 * old.last[0] + old.last[1]
        new = Adaptation(
            window=1 + old.window * (1 - jnp.square(old.mean) / old.square),
            mean=old.mean + rate * (gradient - old.mean),
            square=old.square + rate * (jnp.square(gradient) - old.square),
            noise=old.noise + rate * jnp.where(state.i < 2, 0, jnp.square(bend) / 6 - old.noise),
            share=old.share,
            trial=old.trial,
            heat=old.heat,
            last=jnp.stack([gradient, old.last[0]]),
        )
        learning = state.i < (self._rehearsal(state) if self._rehearses else state.num_warmup)
        return jax.tree.map(lambda a, b: jnp.where(learning, a, b), new, old)

    @property
    def _rehearses(self) -> bool:
        return self.preconditioner == "variance" and self.integrator == "baoab"

    def _rehearsal(self, state: SGHMCState) -> Array:
        """The step from which warm-up tries out the steps that sampling will make."""
        return 3 * state.num_warmup // 4

    def _tried(self, state: SGHMCState, new: Adaptation, temperature: Array) -> Adaptation:
        """Shorter steps where a trial's temperature is off: the law of the chain then is too.

        Stiff combinations of coordinates make the chain unstable; before that their bends pass for
        noise of the gradient, and too little noise is put in.
        """
        if not self._rehearses:
            return new
        trial = new.trial + 1
        heat = new.heat + (temperature - new.heat) / trial
        c = 1 - self.friction
        spread = math.sqrt(2 * (1 + c**2) / ((1 - c**2) * len(state.momentum) * _TRIAL))
        slack = _TOLERANCE + 3 * spread
        off = ((trial >= _TRIAL) & (jnp.abs(heat - 1) > slack)) | jnp.isinf(heat)
        # A chain that was thrown far out needs some steps to come back, however short they are.
        off, done = off & (trial >= _TRIAL // 5), trial >= _TRIAL
        running = (state.i >= self._rehearsal(state)) & (state.i < state.num_warmup)
        found = new._replace(
            share=jnp.where(off, 0.8, 1.0) * new.share,
            trial=jnp.where(off | done, 0, trial),
            heat=jnp.where(off | done | jnp.isinf(heat), 0.0, heat),
        )
        return jax.tree.map(lambda a, b: jnp.where(running, a, b), found, new)

    def _estimate(
        self,
        key: PRNGKey,
        unconstrained: Values,
        anchor: Array,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Energy, Flat]:
        """The energy and its gradient, with control variates where wanted."""
        energy, gradient = self._gradient(key, unconstrained, args, kwargs)
        if self.control_variates:
            unravel = ravel_pytree(unconstrained)[1]
            there = self._gradient(key, unravel(anchor[0]), args, kwargs)[1]
            gradient = anchor[1] + gradient - there
        return energy, gradient

    def _gradient(
        self,
        key: PRNGKey,
        unconstrained: Values,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        all_rows: bool = False,
    ) -> tuple[Energy, Flat]:
        def energy(u: Values) -> tuple[Array, Energy]:
            found = self.potential(key, u, args, kwargs, all_rows=all_rows)
            return found.value, found

        (_, found), gradient = jax.value_and_grad(energy, has_aux=True)(unconstrained)
        return found, ravel_pytree(gradient)[0]
