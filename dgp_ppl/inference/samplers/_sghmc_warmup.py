"""What `SGHMC` learns in warm-up: a scale for each coordinate, and how long a step may be."""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dgp_ppl.inference.samplers._sghmc_state import Adaptation, Flat, SGHMCState

__all__ = ["Integrator", "Preconditioner", "Warmup"]

Preconditioner = Literal["variance", "rms"] | None
Integrator = Literal["baoab", "euler"]

_SEARCH_STEP = 0.02  # of the first half of warm-up, at first
_SEARCH_RATE = 0.1  # at which its averages forget
_GROWTH = 0.1  # of its steps, from one to the next, as far as gradients agree
_AGREEMENT = 0.1  # of gradients, beyond which steps grow
_LEAST = 0.1  # of its steps, of the first one's
_OUTLIER = 3.0  # root mean squares: larger gradients count for so much
_TRIAL = 100  # steps after which a trial's temperature is judged
_TOLERANCE = 0.05  # of it, besides chance
_TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class Warmup:
    """The rules of warm-up; `SGHMC` has the options' meaning.

    With "variance" it has three parts. The search (the first half) finds the typical set: a
    coordinate's steps grow while its gradient keeps its sign and shrink when it turns (as in Rprop:
    Riedmiller & Braun 1993), so that they are soon as long as the way is, and then as the set is
    wide. Then averages of gradients are taken anew, and in the last quarter, the rehearsal, they
    are as they will be, and steps that turn out unstable are made shorter.
    """

    friction: float
    preconditioner: Preconditioner
    integrator: Integrator
    correct_noise: bool

    def first(self, gradient: Flat) -> Adaptation:
        """What is known from the gradient at the start."""
        return Adaptation(
            window=jnp.ones_like(gradient),
            mean=gradient,
            # No huge first step where the first gradient is small: latents are of order 1.
            square=1 + jnp.square(gradient) + jnp.mean(jnp.square(gradient)),
            noise=jnp.zeros_like(gradient),
            reach=jnp.ones_like(gradient),
            share=jnp.ones((), gradient.dtype),
            trial=jnp.zeros((), jnp.int32),
            heat=jnp.zeros((), gradient.dtype),
            last=jnp.stack([gradient, gradient]),
        )

    def searching(self, state: SGHMCState) -> Array:
        """Whether the chain is on its way to the typical set."""
        return (self.preconditioner == "variance") & (2 * state.i < state.num_warmup)

    def felt(self, state: SGHMCState, gradient: Flat) -> Flat:
        """The gradient that moves the chain: in the search, a cliff throws nothing far out."""
        most = _OUTLIER * jnp.sqrt(state.adaptation.square)
        return jnp.where(self.searching(state), jnp.clip(gradient, -most, most), gradient)

    def scales(self, state: SGHMCState, size: Array) -> tuple[Flat, Flat]:
        """Of each coordinate: sqrt(h), h its step squared; what is left out of the noise put in.

        Gradient noise of variance V adds h V to the unit variance of the momentum in each kick. For
        it to be 1 on average over the two half drifts it has to be 1 + h V / 2 before the friction
        and 1 - h V / 2 after the noise.
        """
        adaptation, c = state.adaptation, 1 - self.friction
        scale = jnp.full_like(state.momentum, size)
        if self.preconditioner is not None:
            rms = size * adaptation.square**-0.25
            search = _SEARCH_STEP * adaptation.reach * adaptation.square**-0.25
            exact = size * adaptation.square**-0.5
            scale = exact if self.preconditioner == "variance" else rms
            scale = jnp.where(self.searching(state), search, adaptation.share * scale)
        if not self.correct_noise:
            return scale, jnp.zeros_like(scale)
        share, most = 0.5 * (1 + c**2) * adaptation.noise, 0.5 * (1 - c**2)
        # No more than half of the noise may come from the gradient; the search may run hot.
        shorter = jnp.minimum(scale, jnp.sqrt(most / (share + _TINY)))
        scale = jnp.where(self.searching(state), scale, shorter)
        return scale, jnp.minimum(share * jnp.square(scale), most)

    def adapted(self, state: SGHMCState, gradient: Flat) -> Adaptation:
        """The averages with a new gradient; as they are after warm-up."""
        old, k = state.adaptation, state.i - state.num_warmup // 2
        if self.preconditioner == "rms":  # forgets by what it says (Springenberg et al., eq. 9)
            rate = 1 / (old.window + 1)
        elif self.preconditioner == "variance":
            # After the search gradients weigh in proportion to their number.
            rate = jnp.full_like(gradient, jnp.where(k < 0, _SEARCH_RATE, 2 / (k + 10)))
        else:
            rate = jnp.full_like(gradient, 2 / (state.i + 10))
        bend = gradient - 2 * old.last[0] + old.last[1]
        agreement = jnp.clip(gradient * old.mean / old.square, -1, 1)
        grown = old.reach * jnp.exp(_GROWTH * (agreement - _AGREEMENT))
        new = old._replace(
            window=1 + old.window * (1 - jnp.square(old.mean) / old.square),
            mean=old.mean + rate * (gradient - old.mean),
            square=old.square + rate * (jnp.square(gradient) - old.square),
            noise=old.noise + rate * jnp.where(state.i < 2, 0, jnp.square(bend) / 6 - old.noise),
            reach=jnp.maximum(grown, _LEAST),
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

    def tried(self, state: SGHMCState, new: Adaptation, temperature: Array) -> Adaptation:
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

    def stopped(self, state: SGHMCState) -> Adaptation:
        """After a step that could not be made."""
        old, inf = state.adaptation, jnp.full((), jnp.inf, state.momentum.dtype)
        shorter = old._replace(reach=jnp.where(self.searching(state), 0.5, 1.0) * old.reach)
        return self.tried(state, shorter, inf)
