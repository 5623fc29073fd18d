"""The optimiser of implicit posteriors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import optax

from dgp_ppl._checks import check_count
from dgp_ppl._typing import Params
from dgp_ppl.inference.programs._optimizer import RecordedOptimizer, cosine_schedule

__all__ = ["adversarial_optimizer"]


@lru_cache(maxsize=64)
def adversarial_optimizer(
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    *,
    discriminator: float = 0.1,
    generator: float = 0.01,
    share: float = 0.3,
    discriminator_steps: int = 1,
) -> Any:
    """Make the optimiser of `AdversarialELBO`: Adam with a learning rate for each part.

    All rates follow one cosine decay to 3 %. Both networks have little momentum (b1 = 0.5), because
    each one's target moves with the other. The discriminator's rate is ten times the generator's.
    At equal rates the generator would reach values that the discriminator has not learned yet, and
    the loss would fall below that of any bound.

    Args:
        learning_rate: initial rate of the generator's affine part, and of the guides of other
            latent sites.
        steps: number of steps of the fit.
        slow: names of the model's params.
        discriminator: multiple of the rate for the discriminator.
        generator: multiple of the rate for the generator's network and directions.
        share: multiple of the rate for the model's params.
        discriminator_steps: n_D, the number of steps of the discriminator for each step of the
            other params. They use the mean of their gradients over these steps.

    Returns:
        An `optax` gradient transformation.

    Raises:
        TypeError: if `discriminator_steps` is not an integer.
        ValueError: if `discriminator_steps` is not positive.
    """
    check_count("adversarial_optimizer", "discriminator_steps", discriminator_steps)

    def adam(rate: float, *, b1: float, every: int) -> Any:
        decay = cosine_schedule(rate * learning_rate, -(-steps // every))
        step = optax.adam(decay, b1=b1, b2=0.99)
        return step if every == 1 else optax.MultiSteps(step, every).gradient_transformation()

    def label(params: Params) -> dict[str, str]:
        return {n: _part(n, slow) for n in params}

    parts: Any = {
        "discriminator": adam(discriminator, b1=0.5, every=1),
        "generator": adam(generator, b1=0.5, every=discriminator_steps),
        "guide": adam(1.0, b1=0.95, every=discriminator_steps),
        "model": adam(share, b1=0.95, every=discriminator_steps),
    }
    shares = {"discriminator": discriminator, "generator": generator, "share": share}
    arguments = (learning_rate, steps, slow), {**shares, "discriminator_steps": discriminator_steps}
    return RecordedOptimizer.of(adversarial_optimizer, arguments, optax.partition(parts, label))


def _part(name: str, slow: frozenset[str]) -> str:
    """Return the part that a param belongs to."""
    if name.startswith("implicit.discriminator."):
        return "discriminator"
    if name.startswith("implicit.generator.") or name.endswith(".directions"):
        return "generator"  # these params shape the discriminator's inputs
    return "model" if name in slow else "guide"
