"""What `SGHMC` learns in warm-up: step sizes that are long and stable."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dgp_ppl.inference.samplers._dynamics import Flat, Integrator

Preconditioner = Literal["variance", "rms"] | None

_SEARCH_STEP = 0.02  # initial step size of the search
_SEARCH_RATE = 0.1  # learning rate of the search's moving averages
_GROWTH = 0.1  # largest growth of log(step) in one step of the search
_AGREEMENT = 0.1  # correlation of successive gradients above which steps grow
_SMALLEST_SCALE = 0.1  # smallest step of the search, relative to the initial one
_OUTLIER = 3.0  # the search clips gradients at this many root mean squares
_TRIAL_STEPS = 100  # steps of the rehearsal before it judges a step size
_TOLERANCE = 0.05  # accepted error of the mean temperature, besides chance
_SHRINKAGE = 0.8  # factor of the step size after a failed trial
_TINY = 1e-30


class Adaptation(NamedTuple):
    """What warm-up has learned; [d] unless stated otherwise."""

    window: Flat  # length of the averages of "rms", in steps
    mean: Flat  # moving average of the gradient
    mean_square: Flat  # moving average of its square
    noise_variance: Flat  # variance of the gradient's noise
    search_scale: Flat  # step size of the search, relative to the initial one
    shrinkage: Array  # factor of the step size, below 1 where the rehearsal found it unstable, []
    trial_steps: Array  # steps of the current trial so far, []
    mean_temperature: Array  # average temperature of the current trial, []
    last_gradients: Float[Array, "2 d"]  # gradients of the last two steps, latest first, [2, d]


class Phase(NamedTuple):
    """The part of warm-up, or of sampling, that a step belongs to."""

    step: Array  # number of steps before this one
    averaged: Array  # number of gradients averaged since the search, negative during it
    searching: Array  # whether the chain is on its way to the typical set
    learning: Array  # whether averages of gradients are updated
    rehearsing: Array  # whether the final step sizes are on trial

    @property
    def rate(self) -> Array:
        """The weight of a new gradient after the search. All weigh about the same."""
        return 2 / (self.averaged + 10)


@dataclasses.dataclass(frozen=True)
class Warmup:
    """The rules of warm-up, with options of `SGHMC`.

    With ``preconditioner="variance"`` warm-up has three phases:

    1. *Search*, the first half. It moves the chain to the typical set. A coordinate's step grows
       while its gradient keeps its sign and shrinks when the sign changes (Rprop: Riedmiller &
       Braun 1993).
    2. *Estimation*, until three quarters. Averages of the gradient, its square and its noise
       restart.
    3. *Rehearsal*, the last quarter, with ``integrator="baoab"`` only. The chain runs with its
       final step sizes, which shrink if the kinetic temperature shows that they are unstable.
    """

    friction: float
    preconditioner: Preconditioner
    integrator: Integrator
    correct_noise: bool

    def init(self, gradient: Flat) -> Adaptation:
        """Return the initial adaptation, given the gradient at the start."""
        return Adaptation(
            window=jnp.ones_like(gradient),
            mean=gradient,
            # The 1 bounds the first step where the first gradient is small: latents are of order 1.
            mean_square=1 + jnp.square(gradient) + jnp.mean(jnp.square(gradient)),
            noise_variance=jnp.zeros_like(gradient),
            search_scale=jnp.ones_like(gradient),
            shrinkage=jnp.ones((), gradient.dtype),
            trial_steps=jnp.zeros((), jnp.int32),
            mean_temperature=jnp.zeros((), gradient.dtype),
            last_gradients=jnp.stack([gradient, gradient]),
        )

    def phase(self, step: Array, num_warmup: Array) -> Phase:
        rehearsal = 3 * num_warmup // 4
        return Phase(
            step=step,
            averaged=step - num_warmup // 2,
            searching=self._searches & (2 * step < num_warmup),
            learning=step < (rehearsal if self._rehearses else num_warmup),
            rehearsing=(step >= rehearsal) & (step < num_warmup),
        )

    @property
    def _searches(self) -> bool:
        return self.preconditioner == "variance"

    @property
    def _rehearses(self) -> bool:
        return self._searches and self.integrator == "baoab"

    def clipped(self, adaptation: Adaptation, phase: Phase, gradient: Flat) -> Flat:
        """Return the gradient that moves the chain. The search clips outliers."""
        most = _OUTLIER * jnp.sqrt(adaptation.mean_square)
        return jnp.where(phase.searching, jnp.clip(gradient, -most, most), gradient)

    def scales(self, adaptation: Adaptation, phase: Phase, size: Array) -> tuple[Flat, Flat]:
        """Return each coordinate's step size, and the variance to subtract from the injected noise.

        A kick with step size sqrt(h) and gradient noise of variance V adds h V to the momentum's
        unit variance. To average 1 over the two half drifts, that variance must be 1 + h V / 2
        before the friction and 1 - h V / 2 after the noise.
        """
        c = 1 - self.friction
        scale = jnp.full_like(adaptation.mean, size)
        if self.preconditioner is not None:
            rms = size * adaptation.mean_square**-0.25
            search = _SEARCH_STEP * adaptation.search_scale * adaptation.mean_square**-0.25
            inverse = size * adaptation.mean_square**-0.5
            scale = inverse if self._searches else rms
            scale = jnp.where(phase.searching, search, adaptation.shrinkage * scale)
        if not self.correct_noise:
            return scale, jnp.zeros_like(scale)
        per_square, most = 0.5 * (1 + c**2) * adaptation.noise_variance, 0.5 * (1 - c**2)
        # The gradient may supply at most half of the noise, except in the search.
        shorter = jnp.minimum(scale, jnp.sqrt(most / (per_square + _TINY)))
        scale = jnp.where(phase.searching, scale, shorter)
        return scale, jnp.minimum(per_square * jnp.square(scale), most)

    def moved(
        self, old: Adaptation, phase: Phase, gradient: Flat, temperature: Array
    ) -> Adaptation:
        """Return the adaptation after a step with this gradient and temperature.

        Moving averages are unchanged once learning has ended.
        """
        if self.preconditioner == "rms":  # a window for each coordinate: Springenberg et al., eq. 9
            rate = 1 / (old.window + 1)
        elif self._searches:
            later = phase.rate
            rate = jnp.full_like(gradient, jnp.where(phase.averaged < 0, _SEARCH_RATE, later))
        else:
            rate = jnp.full_like(gradient, 2 / (phase.step + 10))
        # A smooth path has no second difference; independent noise of variance V has one of 6 V.
        second = gradient - 2 * old.last_gradients[0] + old.last_gradients[1]
        noise = jnp.where(phase.step < 2, 0, jnp.square(second) / 6 - old.noise_variance)
        agreement = jnp.clip(gradient * old.mean / old.mean_square, -1, 1)
        grown = old.search_scale * jnp.exp(_GROWTH * (agreement - _AGREEMENT))
        new = old._replace(
            window=1 + old.window * (1 - jnp.square(old.mean) / old.mean_square),
            mean=old.mean + rate * (gradient - old.mean),
            mean_square=old.mean_square + rate * (jnp.square(gradient) - old.mean_square),
            noise_variance=old.noise_variance + rate * noise,
            search_scale=jnp.maximum(grown, _SMALLEST_SCALE),
            last_gradients=jnp.stack([gradient, old.last_gradients[0]]),
        )
        new = jax.tree.map(lambda a, b: jnp.where(phase.learning, a, b), new, old)
        return self._after_trial(new, phase, temperature)

    def rejected(self, adaptation: Adaptation, phase: Phase) -> Adaptation:
        """Return the adaptation after a step that diverged."""
        infinite = jnp.full((), jnp.inf, adaptation.mean.dtype)
        factor = jnp.where(phase.searching, 0.5, 1.0)
        shorter = adaptation._replace(search_scale=factor * adaptation.search_scale)
        return self._after_trial(shorter, phase, infinite)

    def _after_trial(self, new: Adaptation, phase: Phase, temperature: Array) -> Adaptation:
        """Shrink the step size if a trial's mean temperature is far from 1.

        Stiff combinations of coordinates make the chain unstable. Even before that, their curvature
        looks like gradient noise, so that too little noise is injected.
        """
        if not self._rehearses:
            return new
        steps = new.trial_steps + 1
        mean = new.mean_temperature + (temperature - new.mean_temperature) / steps
        c = 1 - self.friction
        error = math.sqrt(2 * (1 + c**2) / ((1 - c**2) * len(new.mean) * _TRIAL_STEPS))
        slack = _TOLERANCE + 3 * error
        off = ((steps >= _TRIAL_STEPS) & (jnp.abs(mean - 1) > slack)) | jnp.isinf(mean)
        # A chain that was thrown far out needs some steps to return, however short they are.
        off, done = off & (steps >= _TRIAL_STEPS // 5), steps >= _TRIAL_STEPS
        found = new._replace(
            shrinkage=jnp.where(off, _SHRINKAGE, 1.0) * new.shrinkage,
            trial_steps=jnp.where(off | done, 0, steps),
            mean_temperature=jnp.where(off | done | jnp.isinf(mean), 0.0, mean),
        )
        return jax.tree.map(lambda a, b: jnp.where(phase.rehearsing, a, b), found, new)
