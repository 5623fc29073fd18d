"""The optimiser of a fit, built from what its guide declares."""

from __future__ import annotations

from typing import Any

import optax

from dgp_ppl._typing import Model
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.programs._optimizer import default_optimizer

__all__ = ["guide_optimizer"]


def guide_optimizer(
    guide: Model,
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    *,
    from_params: bool = False,
) -> Any:
    """Return `fit`'s default optimiser for a guide, for stock `SVI` too.

    Guides declare what they need in `LayerGuide.rate`, `rates` and `optimizer`::

        guide.setup(x, y)
        svi = SVI(model, guide, guide_optimizer(guide, 0.1, 2000), guide.default_loss)

    Args:
        guide: the guide, which has run, or whose `LayerGuide.setup` was called.
        learning_rate: where the schedule starts.
        steps: number of steps of the fit.
        slow: names of the model's own params, which move at 0.3 of the rate.
        from_params: whether the fit starts from given params.

    Returns:
        An optax optimiser.
    """
    if not isinstance(guide, LayerGuide):
        return default_optimizer(learning_rate, steps, slow)
    if guide.optimizer is None:
        share = guide.rate if from_params else 1.0
        rates = tuple((start, rate / share) for start, rate in guide.rates.items())
        return default_optimizer(share * learning_rate, steps, slow, rates, guide.row_params)
    special, rows = guide.optimizer(learning_rate, steps, slow), guide.row_params
    if not rows:
        return special
    parts: Any = {"rows": default_optimizer(learning_rate, steps, rows=rows), "special": special}
    label = lambda params: {n: "rows" if n in rows else "special" for n in params}  # noqa: E731
    return optax.partition(parts, label)
