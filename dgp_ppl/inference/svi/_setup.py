"""Set up a fit, and report a loss that is not finite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import optax
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO, RenyiELBO

from dgp_ppl._checks import params_of
from dgp_ppl._errors import NonFiniteLossError
from dgp_ppl._partition import Call, CallArrays, Partition
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference._params import set_up_guide
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.programs._data import RowCheck, check_data, explain_data, row_check
from dgp_ppl.inference.programs._optimizer import default_optimizer
from dgp_ppl.inference.svi._loop import Failure, TrainingLoop, training_loop

__all__ = [
    "Problem", "Start", "bound_loss", "checked_loss", "guide_optimizer", "non_finite_loss",
]  # fmt: skip

Start = Fitted | Params | None
"""What a fit starts from: some params, or all of a result; None has the initial values."""

_DEFAULT_LOSS = TraceMeanField_ELBO()


@dataclasses.dataclass(frozen=True)
class Problem:
    """A fit that is ready to run."""

    loop: TrainingLoop
    data: CallArrays  # of the model and of the guide
    optimizer: Any  # the default one if none was given
    num_data: int  # rows N of the data plate
    starts: list[Params]  # of each candidate; params that are not there have initial values
    check_rows: RowCheck  # of streamed arguments

    @staticmethod
    def set_up(
        caller: str,
        key: PRNGKey,
        model: Model,
        guide: Model,
        call: Call,
        *,
        steps: int,
        learning_rate: float,
        optimizer: Any,
        loss: ELBO | None,
        start: Start | Sequence[Start],
    ) -> Problem:
        """Check the arguments of a fit, and build its loop."""
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise ValueError(
                f"{caller}: learning_rate is {learning_rate}, wanted a positive number"
            )
        call, sites = check_data(caller, model, call)
        set_up_guide(key, guide, call, model, sites)
        # A NumPyro result is a tuple too.
        entries: Any = start
        several = isinstance(start, list) or type(start) is tuple
        given: list[Any] = list(entries) if several else [entries]
        if not given:
            raise ValueError(f"{caller}: start has no values, wanted one of the starts at least")
        names = [f"start[{i}]" for i in range(len(given))] if several else ["start"]
        starts = [
            {} if a is None else params_of(caller, a, name)
            for a, name in zip(given, names, strict=True)
        ]
        partition, data = Partition.split(model, call, guide)
        model_params = frozenset(n for n, s in sites.items() if s["type"] == "param")
        if optimizer is None:
            optimizer = guide_optimizer(
                guide, learning_rate, steps, model_params, from_params={} not in starts
            )
        default = guide.default_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS
        loop = training_loop(partition, optimizer, checked_loss(caller, guide, loss) or default)
        check_rows = row_check(caller, model, call, sites)
        return Problem(loop, data, optimizer, _num_rows(sites), starts, check_rows)


def guide_optimizer(
    guide: Model,
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    *,
    from_params: bool = False,
) -> Any:
    """Return `fit`'s default optimiser, an optax one, for a guide that has found its layers.

    Guides declare what they need in `LayerGuide.rate`, `rates` and `optimizer`. `slow` are the
    model's own params, and `from_params` is whether the fit starts from given params.
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


def bound_loss(guide: Model) -> ELBO:
    """Return the objective that is minus a lower bound of the log evidence."""
    return guide.bound_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS


def checked_loss(caller: str, guide: Model, loss: ELBO | None) -> ELBO | None:
    """Return the loss, unless it would weigh draws that the guide integrates out."""
    if isinstance(loss, RenyiELBO) and isinstance(guide, LayerGuide):
        raise TypeError(
            f"{caller}: loss is a RenyiELBO, which weighs a draw of v by log p(v) - log q(v), but "
            f"{type(guide).__name__} has v integrated out of p(y | v): the value would lie above "
            "the evidence; wanted dgp_ppl.ImportanceWeighted(K)"
        )
    return loss


def non_finite_loss(
    loop: TrainingLoop, failure: Failure, call: Call, steps: int, result: Any
) -> NonFiniteLossError:
    """Return the error of a fit that failed; `result` has the last state with a finite loss."""
    step, site = failure.step, loop.first_non_finite(failure.state, failure.data)
    kept = f"the state before it, after {step - 1} steps, is the error's result" if step else ""
    advice = (
        "Try a smaller learning_rate, standardised data (dgp_ppl.Standardizer), or float64 "
        "(jax_enable_x64)"
    )
    return NonFiniteLossError(
        f"the loss is not finite at step {step} (of {steps}); first not finite: {site}. "
        f"{explain_data(loop.partition.model, call) or advice}{'; ' + kept if kept else ''}",
        step=step,
        site=site,
        result=result if step else None,
    )


def _num_rows(sites: dict[str, Any]) -> int:
    """Return the size of the plate ``data``, else of the largest plate, else of observed values."""
    sizes = {n: s["args"][0] for n, s in sites.items() if s["type"] == "plate"}
    observed = 1
    for site in sites.values():
        if site["type"] == "sample" and site["is_observed"]:
            observed = (*jnp.shape(site["value"]), 1)[0]
    return max(1, sizes.get("data", max(sizes.values(), default=observed)))
