"""Stochastic-gradient Hamiltonian Monte Carlo, a kernel for NumPyro's `MCMC`."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro.infer.initialization import init_to_median
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key, not_jax_tracer

from dgp_ppl._checks import check_count
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.inference.samplers._potential import Energy, Potential, Values
from dgp_ppl.inference.samplers._sghmc_state import Flat, SGHMCState
from dgp_ppl.inference.samplers._sghmc_warmup import Integrator, Preconditioner, Warmup

__all__ = ["SGHMC", "SGHMCState"]

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

    Warm-up: with "variance" its first half searches for the typical set, in steps that grow while
    gradients agree, from thousands of posterior standard deviations away; then the averages of
    gradients are taken anew. In its last quarter they are as they will be, and steps that the
    momentum's temperature shows to be unstable (where very many coordinates depend on each other)
    are made shorter. Nothing is adapted after warm-up. It needs 500 steps, 2,000 with small
    minibatches, and more where most of the gradient is their noise. Draws after one that was cut
    short are on their way still, and far too wide; R-hat tells, and the ``temperature``, whose mean
    over draws is 1 if all is well. `run_mcmc` warns where it is far from that; of stock `MCMC` ask
    for ``extra_fields=("temperature",)``. Extra fields: ``potential_energy``, ``temperature`` (the
    momentum's), ``step_size``, ``diverging``.

    Deterministic sites are computed at every step by stock `MCMC`, thinned ones too, and take a
    pass of all rows each time. Give it ``SGHMC(model, num_steps=50)`` in place of ``thinning=50``
    (num_warmup and num_samples then count fifties), or leave a site out:
    ``extra_fields=("~z.f",)``. `run_mcmc` drops steps before it computes anything of them. Noise in
    these sites (hidden layers' units) is each draw's own, by a random key from its latents.

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
        num_steps: steps, each with its gradient, that are one step of `MCMC`.
        cycle: steps of a cycle within which e falls to a tenth along a cosine and then jumps back
            (after Zhang et al. 2020, with noise all along: every draw is one); None keeps e.
        init_strategy: NumPyro's, for sites that ``init_params`` leaves out.

    Raises:
        TypeError: if `num_steps` or `cycle` is no integer.
        ValueError: for other options than these; in `init`, if the model has discrete latent sites
            or none, ``init_params`` do not fit, or the energy or its gradient is not finite there
            (under JAX's transformations that cannot be seen).
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
        integrator: Integrator = "baoab",
        correct_noise: bool = True,
        control_variates: bool = False,
        num_steps: int = 1,
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
        check_count("SGHMC", "num_steps", num_steps)
        if cycle is not None:
            check_count("SGHMC", "cycle", cycle, 2)
        self._model, self.potential = model, Potential(model)
        self.step_size, self.friction, self.preconditioner = step_size, friction, preconditioner
        self.integrator, self.cycle, self.init_strategy = integrator, cycle, init_strategy
        self.correct_noise = correct_noise and integrator == "baoab"
        self.control_variates, self.num_steps = control_variates, num_steps
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
            self._check_start(rng_key, state, model_args, model_kwargs)
        return state

    def sample(
        self, state: SGHMCState, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> SGHMCState:
        """`num_steps` steps, which diverge if one of them does."""

        def step(_: Any, state: SGHMCState) -> SGHMCState:
            new = self._step(state, model_args, model_kwargs)
            return new._replace(diverging=state.diverging | new.diverging)

        def one(state: SGHMCState) -> SGHMCState:
            fresh = state._replace(diverging=jnp.zeros_like(state.diverging))
            return lax.fori_loop(0, self.num_steps, step, fresh)

        return one(state) if is_prng_key(state.rng_key) else jax.vmap(one)(state)

    def _first(
        self,
        key: PRNGKey,
        num_warmup: int,
        given: Values,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> SGHMCState:
        key, key_start, key_gradient, key_all, key_momentum = _start_keys(key)
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
        return SGHMCState(
            i=jnp.zeros((), jnp.int32),
            z=energy.latents,
            unconstrained=unconstrained,
            momentum=random.normal(key_momentum, flat.shape, flat.dtype),
            adaptation=self._warmup.first(gradient),
            anchor=anchor,
            potential_energy=energy.value,
            temperature=jnp.ones((), flat.dtype),
            step_size=jnp.asarray(self.step_size, flat.dtype),
            diverging=jnp.zeros((), bool),
            num_warmup=jnp.asarray(num_warmup * self.num_steps, jnp.int32),
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

    def _check_start(
        self, key: PRNGKey, state: SGHMCState, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        gradient, where = state.adaptation.mean, state.unconstrained
        sound = jnp.isfinite(state.potential_energy) & jnp.isfinite(gradient).all(axis=-1)
        if sound.all():
            return
        which = ""
        if jnp.ndim(sound):
            chains = jnp.flatnonzero(~sound).tolist()
            which = f" of chains {chains}"
            key, gradient, where = jax.tree.map(lambda a: a[chains[0]], (key, gradient, where))
        sites = self.potential.not_finite(_start_keys(key)[2], where, args, kwargs)
        slopes = ravel_pytree(where)[1](gradient)
        steep = [n for n, a in slopes.items() if not jnp.isfinite(a).all()]
        raise ValueError(
            f"SGHMC: the potential energy or its gradient is not finite at the start{which}: the "
            f"log densities {sites}; the gradients of {steep}. Look for NaN in the data, or start "
            "elsewhere: init_params (unconstrained values), or another init_strategy"
        )

    def _step(self, state: SGHMCState, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SGHMCState:
        key, key_noise, key_gradient = random.split(state.rng_key, 3)
        x, unravel = ravel_pytree(state.unconstrained)
        size = self._size(state)
        scale, removed = self._warmup.scales(state, size)
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
        gradient = self._warmup.felt(state, gradient)
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
        sound = finite & ~(hot & ~self._warmup.searching(state))
        moved = state._replace(
            z=energy.latents,
            unconstrained=unconstrained,
            momentum=r,
            adaptation=self._warmup.tried(
                state, self._warmup.adapted(state, gradient), temperature
            ),
            potential_energy=energy.value,
            temperature=temperature,
        )
        stayed = state._replace(momentum=noise, adaptation=self._warmup.stopped(state))
        kept = jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, stayed)
        return kept._replace(i=state.i + 1, step_size=size, diverging=~sound, rng_key=key)

    def _size(self, state: SGHMCState) -> Array:
        """The step's size: a tenth of it at the end of a cycle."""
        size = jnp.asarray(self.step_size, state.momentum.dtype)
        if self.cycle is None:
            return size
        done = (jnp.maximum(state.i - state.num_warmup, 0) % self.cycle) / self.cycle
        return size * (0.1 + 0.9 * 0.5 * (1 + jnp.cos(jnp.pi * done)))

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


def _start_keys(key: PRNGKey) -> Array:
    """For the steps, and of the start: its values, its gradient, all rows' gradient, momentum."""
    return random.split(key, 5)
