"""Fits by NumPyro's SVI, in a loop that stays on the device."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO, RenyiELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._checks import check_count, check_key
from dgp_ppl._errors import DataError, Interrupted, NonFiniteLossError
from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference._data import check_data, explain_data
from dgp_ppl.inference._guide_optimizer import guide_optimizer
from dgp_ppl.inference._loop import compiled_losses, run_steps, training_loop
from dgp_ppl.inference._params import checked_params, checked_start, set_up_guide
from dgp_ppl.inference._pickling import Portable
from dgp_ppl.inference._summary import Summarized, list_arrays, list_losses
from dgp_ppl.inference.guides import LayerGuide

_DRAWS = 100  # of a bound, to compare two sets of params
_DEFAULT_LOSS = TraceMeanField_ELBO()

__all__ = ["FitResult", "evaluate", "fit"]


@dataclasses.dataclass(frozen=True, repr=False)
class FitResult(Summarized, Portable):
    """The outcome of a fit. It can be pickled.

    An `optimizer` that cannot be pickled (any of optax's) is None after loading; `fit`'s default
    can. To continue such a fit, give the same one to ``dataclasses.replace(result, optimizer=...)``
    and to `fit`.

    Attributes:
        params: constrained values of all params, a dict of arrays.
        losses: minus the ELBO in nats before every step of this call, [steps].
        num_data: rows N of the data plate, or of the observed site if the model has no plate.
        state: NumPyro's SVI state of these params, from which a fit can go on.
        seconds: wall-clock time of the steps, compilation included.
        optimizer: the optax optimiser of the state.
        reverted: whether `keep_best` returned the params that the fit began with.
        interrupted: whether Ctrl-C ended the fit early; see `Interrupted`.
    """

    params: Params
    losses: np.ndarray
    num_data: int
    state: SVIState
    seconds: float
    optimizer: Any
    reverted: bool = False
    interrupted: bool = False

    if_possible: ClassVar[tuple[str, ...]] = ("optimizer",)

    @property
    def elbo_per_datum(self) -> np.ndarray:
        """The ELBO estimates of every step, in nats per data point, [steps]."""
        return -self.losses / self.num_data

    def summary(self) -> list[str]:
        first = list_losses("loss", self.losses, self.seconds)
        if len(self.losses):
            first += f" nats (ELBO per datum {self.elbo_per_datum[-1]:.4g}, N = {self.num_data})"
        reverted = ["keep_best returned the params that the fit began with"] * self.reverted
        interrupted = ["interrupted before its last step"] * self.interrupted
        return [first, *reverted, *interrupted, *list_arrays("params", self.params)]


def fit(
    key: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    steps: int = 6000,
    learning_rate: float = 0.1,
    optimizer: Any = None,
    loss: ELBO | None = None,
    start: Fitted | Params | None = None,
    keep_best: bool = False,
    progress: bool | str = True,
    **kwargs: Any,
) -> FitResult:
    """Fit a guide to a model by SVI, in compiled chunks of steps.

    The model's own arguments follow `guide`, by position or by keyword::

        result = dgp.fit(key, model, dgp.MeanField(model), x, y, z=z, batch_size=1000)
        result.params, result.elbo_per_datum

    Args:
        key: random key; the same key gives the same fit.
        model: a NumPyro model.
        guide: its guide, such as `MeanField(model)`.
        *args: the model's positional arguments.
        steps: number of optimiser steps.
        learning_rate: initial learning rate of the default optimiser, Adam (b1 = 0.95, b2 = 0.99)
            with one cosine decay to 3 % of it. The model's own params (hyperparameters, inducing
            inputs) move at 0.3 of it. Guides may declare other shares: see `LayerGuide.rate`.
        optimizer: an optax optimiser in place of the default.
        loss: the objective in place of the guide's (`LayerGuide.default_loss`), which is
            `TraceMeanField_ELBO()` for most guides.
        start: params to start from, some or all, or an earlier result. Those that neither the model
            nor the guide has are left out. With an earlier `FitResult` and its own
            `optimizer` the fit goes on exactly where it stopped, and `key` is not used: two calls
            of n steps equal one of 2n. With another optimiser it starts from the result's params.
        keep_best: compare the params at the end with those that the fit began with, by 100 draws of
            the objective with the same keys, and return the better ones. Noisy fits, such as of a
            `Diffusion` on a nearly exact base, can lose more than they gain. The objective is
            `loss`, or `LayerGuide.bound_loss` without one.
        progress: show a progress bar with the ELBO per datum; a string is its label. If the
            standard error stream is no terminal, it is a line at the end, and before it one per
            tenth of the steps, at most every ten seconds.
        **kwargs: the model's keyword arguments.

    Returns:
        Params, losses, and the state from which the fit can go on.

    Raises:
        DataError: if an argument that the model observes is NaN or out of its distribution's
            support, and no mask leaves it out. Values that the model computes are not checked.
        Interrupted: at Ctrl-C, a `KeyboardInterrupt`. Its `result` is the fit after the last
            finished steps (up to 200 of them run at once), which predicts and can be saved like any
            other.
        NonFiniteLossError: at the first loss that is not finite. It names the step and the site;
            its `result` is the last finite state.
        TypeError: if `key` is no random key, `steps` is not an integer, `guide` is None, an
            argument is an array of text, or `start` is neither a dict nor a result; for a
            `RenyiELBO` with a guide of layers.
        ValueError: if `steps` or `learning_rate` is not positive, a param of `start` has another
            shape, or the model and the guide have none of them.
    """
    check_key("fit", key)
    check_count("fit", "steps", steps)
    if guide is None:
        raise TypeError("fit: guide is None, wanted a guide, such as dgp_ppl.MeanField(model)")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"fit: learning_rate is {learning_rate}, wanted a positive number")
    begun = time.perf_counter()
    call = Call(args, kwargs)
    sites = check_data("fit", model, call)
    set_up_guide(key, guide, call)
    first_params = None if start is None else checked_start("fit", start, model, guide, call)
    partition, data = Partition.split(model, call, guide)
    num_data, model_params = _describe(sites)
    continues = isinstance(start, FitResult) and None is not optimizer is start.optimizer
    if optimizer is None:
        optimizer = guide_optimizer(
            guide, learning_rate, steps, model_params, from_params=start is not None
        )
    objective = _checked("fit", guide, loss) or _default_loss(guide)
    loop = training_loop(model, guide, optimizer, objective, partition)
    state = loop.init(key, data, first_params)
    if continues and isinstance(start, FitResult):
        state = start.state
    first = state
    state, losses, failed, interrupt = run_steps(
        loop, state, data, steps=steps, num_data=num_data, progress=progress
    )
    reverted = False
    if keep_best and failed is interrupt is None:
        keys, wanted = random.split(key, _DRAWS), loss or _bound_loss(guide)
        before, after = (loop.mean_loss(wanted, keys, s, data) for s in (first, state))
        if reverted := before < after or not math.isfinite(after):
            state = first._replace(rng_key=state.rng_key)
    seconds = time.perf_counter() - begun
    result = FitResult(
        loop.params(state), losses, num_data, state, seconds, optimizer, reverted,
        interrupted=interrupt is not None,
    )  # fmt: skip
    if interrupt is not None:
        raise Interrupted(
            f"fit: interrupted after {len(losses)} of {steps} steps; the fit so far is the error's "
            "result. To go on, call fit with start=error.result and "
            f"optimizer=error.result.optimizer for {steps - len(losses)} steps",
            result,
        ) from interrupt
    if failed is None:
        return result
    step, site = len(losses), loop.first_non_finite(failed, data)
    kept = f"the state before it, after {step - 1} steps, is the error's result" if step else ""
    advice = (
        "Try a smaller learning_rate, standardised data (dgp_ppl.Standardizer), or float64 "
        "(jax_enable_x64)"
    )
    raise NonFiniteLossError(
        f"the loss is not finite at step {step} (of {steps}); first not finite: {site}. "
        f"{explain_data(model, call) or advice}{'; ' + kept if kept else ''}",
        step=step,
        site=site,
        result=result if step else None,
    )


def evaluate(
    key: PRNGKey,
    model: Model,
    guide: Model,
    params: Params | Fitted,
    *args: Any,
    loss: ELBO | None = None,
    num_draws: int = 20,
    **kwargs: Any,
) -> tuple[float, float]:
    """Estimate the ELBO at fixed params, in nats: the mean and its standard error.

    Args:
        key: random key.
        model: a NumPyro model.
        guide: its guide.
        params: of the model and the guide, or the fit's result.
        *args: the model's positional arguments.
        loss: the objective in place of the guide's `LayerGuide.bound_loss`. (The loss that an
            `Implicit` guide is fitted with is not a bound.)
        num_draws: number of estimates; one is in memory at a time.
        **kwargs: the model's keyword arguments.

    Raises:
        DataError: if the data are NaN or out of the support, as in `fit`, or the ELBO is not finite
            because another argument is NaN.
        TypeError: if `key` is no random key; for a `RenyiELBO` with a guide of layers.
        ValueError: if the names or shapes of params are not those of the model and the guide.
    """
    check_key("evaluate", key)
    check_count("evaluate", "num_draws", num_draws, 2)
    call = Call(args, kwargs)
    check_data("evaluate", model, call)
    set_up_guide(key, guide, call)
    partition, data = Partition.split(model, call, guide)
    objective = _checked("evaluate", guide, loss) or _bound_loss(guide)
    params = checked_params("evaluate", params, model, guide, call)
    program = (model, guide, objective, partition)
    values = -np.asarray(compiled_losses(program, random.split(key, num_draws), params, data))
    if not np.isfinite(values).all() and (why := explain_data(model, call)):
        raise DataError(f"evaluate: {why}")
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(num_draws))


def _default_loss(guide: Model) -> ELBO:
    return guide.default_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS


def _bound_loss(guide: Model) -> ELBO:
    return guide.bound_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS


def _checked(caller: str, guide: Model, loss: ELBO | None) -> ELBO | None:
    """Return the loss, unless it would weigh draws that the guide integrates out."""
    if isinstance(loss, RenyiELBO) and isinstance(guide, LayerGuide):
        raise TypeError(
            f"{caller}: loss is a RenyiELBO, which weighs a draw of v by log p(v) - log q(v), but "
            f"{type(guide).__name__} has v integrated out of p(y | v): the value would lie above "
            "the evidence; wanted dgp_ppl.ImportanceWeighted(K)"
        )
    return loss


def _describe(sites: dict[str, Any]) -> tuple[int, frozenset[str]]:
    """Return the number of rows N, and the names of the model's params.

    N is that of the plate ``data``, else of the largest plate, else of an observed site.
    """
    sizes: dict[str, int] = {}
    params: set[str] = set()
    observed = 1
    for name, site in sites.items():
        if site["type"] == "param":
            params.add(name)
        elif site["type"] == "plate":
            sizes[name] = site["args"][0]
        elif site["type"] == "sample" and site["is_observed"]:
            observed = (*jnp.shape(site["value"]), 1)[0]
    num_data = sizes.get("data", max(sizes.values(), default=observed))
    return max(1, num_data), frozenset(params)
