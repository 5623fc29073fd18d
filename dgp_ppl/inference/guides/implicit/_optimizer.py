"""The optimiser of implicit posteriors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import optax

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
) -> Any:
    """Make the optimiser of `AdversarialELBO`: Adam with a learning rate for each part.

    All rates follow one cosine decay to 3 %. Both networks have little momentum (b1 = 0.5), because
    each one's target moves with the other. The discriminator's rate is ten times the generator's.
    At equal rates the generator would reach values that the discriminator has not learned yet, and
    the loss would fall below every bound.

    Args:
        learning_rate: initial rate of the generator's affine part, and of the guides of other
            latent sites.
        steps: number of steps of the fit.
        slow: names of the model's params.
        discriminator: multiple of the rate for the discriminator.
        generator: multiple of the rate for the generator's network and directions.
        share: multiple of the rate for the model's params.

    Returns:
        An `optax` gradient transformation.
    """

    def adam(rate: float, b1: float) -> Any:
        return optax.adam(cosine_schedule(rate * learning_rate, steps), b1=b1, b2=0.99)

    def part(name: str) -> str:
        if name.startswith("implicit.discriminator."):
            return "discriminator"
        if name.startswith("implicit.generator.") or name.endswith(".directions"):
            return "generator"  # these params shape the discriminator's inputs
        return "model" if name in slow else "guide"

    def label(params: Params) -> dict[str, str]:
        return {n: part(n) for n in params}

    parts: Any = {
        "discriminator": adam(discriminator, 0.5),
        "generator": adam(generator, 0.5),
        "guide": adam(1.0, 0.95),
        "model": adam(share, 0.95),
    }
    shares = {"discriminator": discriminator, "generator": generator, "share": share}
    arguments = (learning_rate, steps, slow), shares
    return RecordedOptimizer.of(adversarial_optimizer, arguments, optax.partition(parts, label))
