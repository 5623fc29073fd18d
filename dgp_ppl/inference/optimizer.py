"""The optimiser that `fit` uses by default."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import optax

from dgp_ppl._typing import Params

__all__ = ["cosine_schedule", "default_optimizer"]


def cosine_schedule(learning_rate: float, steps: int) -> Callable[[Any], Any]:
    """Cosine decay from `learning_rate` to 3 % of it over `steps`: an optax schedule."""
    return optax.cosine_decay_schedule(learning_rate, max(steps, 1), alpha=0.03)


@lru_cache(maxsize=64)
def default_optimizer(
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    rates: tuple[tuple[str, float], ...] = (),
    *,
    b1: float = 0.95,
    b2: float = 0.99,
    share: float = 0.3,
) -> Any:
    """Adam with `cosine_schedule`; the params named in `slow` are moved at a share of the rate.

    So are those whose names start as in `rates`, which has a share for each: a guide's own wishes.

    What it does is measured by benchmarks/optimizers.py. A bound's gradient is all but noiseless,
    and its scale falls by orders of magnitude on the way: a shorter memory of squares than Adam's
    usual 1,000 steps, with more momentum, gets further in as many. And q(v) can be moved faster
    than the hyperparameters, which at the rate that suits q(v) can run into regions that the fit
    does not leave again.
    """

    def adam(rate: float) -> optax.GradientTransformation:
        return optax.adam(cosine_schedule(rate, steps), b1=b1, b2=b2)

    def group(name: str) -> str:
        if name in slow:
            return "model"
        return next((start for start, _ in rates if name.startswith(start)), "guide")

    def label(params: Params) -> dict[str, str]:
        return {name: group(name) for name in params}

    parts: dict[Hashable, Any] = {
        "guide": adam(learning_rate),
        "model": adam(share * learning_rate),
        **{start: adam(part * learning_rate) for start, part in rates},
    }
    return optax.partition(parts, label)
