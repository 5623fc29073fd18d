"""The state of `SGHMC`."""

from typing import NamedTuple

from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.samplers._potential import Values

__all__ = ["Adaptation", "Flat", "SGHMCState"]

Flat = Float[Array, " d"]


class Adaptation(NamedTuple):
    """What warm-up learns of each coordinate; all [d].

    Attributes:
        window: steps that the averages of "rms" reach back.
        mean: average of the gradient.
        square: average of its square.
        noise: variance of its noise.
        reach: of the search's steps, in units of the first one's.
        share: of the step size that is taken: less where warm-up has found it too large, [].
        trial: steps with this share so far, [].
        heat: average temperature in them, [].
        last: the gradients of the last two steps, [2, d].
    """

    window: Flat
    mean: Flat
    square: Flat
    noise: Flat
    reach: Flat
    share: Array
    trial: Array
    heat: Array
    last: Float[Array, "2 d"]


class SGHMCState(NamedTuple):
    """A chain's state.

    Attributes:
        i: steps done.
        z: the latent sites.
        unconstrained: the same without bounds: what moves.
        momentum: in units of its stationary standard deviation, [d].
        adaptation: what warm-up has learnt.
        anchor: with control variates, where the gradient of all rows is known, and it; [2, d].
        potential_energy: the step's estimate, in nats.
        temperature: kinetic: mean square of the momentum in mid-step, 1 on average.
        step_size: of this step; less than the kernel's within a cycle.
        diverging: whether the gradient was not finite, or the momentum far too large: the chain
            then stayed where it was.
        num_warmup: steps of warm-up.
        rng_key: random key.
    """

    i: Array
    z: Values
    unconstrained: Values
    momentum: Flat
    adaptation: Adaptation
    anchor: Array
    potential_energy: Array
    temperature: Array
    step_size: Array
    diverging: Array
    num_warmup: Array
    rng_key: PRNGKey
