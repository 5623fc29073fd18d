"""Fits by NumPyro's SVI, in a loop that stays on the device."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import random
from jax.sharding import Mesh
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._checks import (
    check_count,
    check_counts,
    check_flags,
    check_key,
    check_program,
    checked_call,
)
from dgp_ppl._errors import DataError, Interrupted
from dgp_ppl._partition import TRACING, CallArrays
from dgp_ppl._static_key import Keyed
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.datasets.rows import Rows
from dgp_ppl.datasets.rows._order import seed_of
from dgp_ppl.inference._params import checked_params, set_up_guide
from dgp_ppl.inference.programs._data import check_data, explain_data, row_check
from dgp_ppl.inference.programs._rows import split_padded
from dgp_ppl.inference.runs._checkpoint import RunFolder, folder_of
from dgp_ppl.inference.svi._choice import BOUND_DRAWS, bound_losses, first_states, train
from dgp_ppl.inference.svi._ending import warn_of_bad_ending
from dgp_ppl.inference.svi._feed import Feed, random_feed, source_of
from dgp_ppl.inference.svi._fit_many import best_fit
from dgp_ppl.inference.svi._loop import MOST_STEPS, chunk_length, losses_of
from dgp_ppl.inference.svi._mesh import SharedFolder, checked_mesh, divided_loop
from dgp_ppl.inference.svi._result import FitResult
from dgp_ppl.inference.svi._setup import (
    STEPS,
    Problem,
    Start,
    bound_loss,
    checked_loss,
    non_finite_loss,
    refuse_tracing,
)

StepsProgram = Callable[[SVIState, CallArrays], tuple[SVIState, jax.Array]]


def fit(
    key: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    steps: int | None = None,
    learning_rate: float = 0.1,
    optimizer: Any = None,
    loss: ELBO | None = None,
    start: Start | Sequence[Start] = None,
    keep_best: bool = False,
    restarts: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    mesh: Mesh | Literal["auto"] | None = None,
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
        *args: the model's positional arguments. `Rows` as the first one are read from
            their files ahead of the steps; `batch_size` is then needed.
        steps: number of optimiser steps. None takes 3,000 where q(v) of the last layer moves by
            natural gradients, as under `MeanField`, and each step has at least half of the rows;
            6,000 elsewhere. Where each has all rows, the default optimiser holds its rates for half
            of the steps; without a given number only until the loss has settled.
        learning_rate: initial learning rate of the default optimiser, Adam (b1 = 0.95, b2 = 0.99)
            with one cosine decay to 3 % of it. The model's own params (hyperparameters, inducing
            inputs) move at 0.3 of it. Guides may declare other shares, and natural gradients: see
            `LayerGuide.rate` and `LayerGuide.natural_params`.
        optimizer: an optax optimiser instead of the default.
        loss: the objective instead of the guide's (`LayerGuide.default_loss`), which is
            `TraceMeanField_ELBO()` for most guides.
        start: params to start from, some or all, or an earlier result. Params that neither the
            model nor the guide has are ignored. With an earlier `FitResult` and its own
            `optimizer` the fit goes on exactly where it stopped, and `key` is not used: two calls
            of n steps equal one of 2n. With another optimiser it starts from the result's params.
            A list has several starts, of params or results for their params; None and {} are the
            initial values. Each gets a quarter of the steps, and the one whose loss is lowest then
            (the mean over the last tenth of its trial) goes on. See `FitResult.start_losses`.
        keep_best: compare the params at the end with those that the fit began with, by 100 draws of
            the objective with the same keys, and return the better ones. Noisy fits, such as of a
            `Diffusion` on a nearly exact base, can lose more than they gain. The objective is
            `loss`, or `LayerGuide.bound_loss` without one.
        restarts: number of fits, with keys split from `key`, in one program. The one with the best
            bound, by 100 draws of the objective with the same keys, is returned; see
            `FitResult.restart_bounds`.
        checkpoint: folder for this fit only. A call with the same arguments resumes a killed fit,
            and returns the params and losses of an uninterrupted one, bit for bit. Functions may be
            defined anew: the traced program counts. Trials of several starts are not kept: a fit
            killed there begins again. None writes nothing.
        every: least number of steps between checkpoints.
        mesh: devices that divide the rows among them, a `jax.sharding.Mesh`, or "auto" for all of
            this process. Each has all params and its part of every minibatch that `minibatch`
            draws. With the same key the losses equal the losses on one device up to rounding. The
            devices may belong to several processes (`jax.distributed`), which all make the same
            call with all rows; the first one writes the checkpoints.
        progress: show a progress bar with the ELBO per datum; a string is its label. If the
            standard error stream is no terminal, it is a line at the end, and before it one per
            tenth of the steps, at most every ten seconds.
        **kwargs: the model's keyword arguments.

    Returns:
        Params, losses, and the state from which the fit can go on.

    Raises:
        DataError: if an argument that the model observes is NaN or out of its distribution's
            support, and no mask leaves it out. Values that the model computes are not checked. If
            `checkpoint` holds another fit, or damaged or foreign files, is in use by another
            process, or cannot be written. If processes of a mesh have other arguments or other
            checkpoints than each other.
        Interrupted: at Ctrl-C, a `KeyboardInterrupt`. Its `result` is the fit after the last
            finished steps (up to 200 steps are one call), which predicts and can be saved like any
            other.
        NonFiniteLossError: at the first loss that is not finite. It names the step and the site;
            its `result` is the last finite state.
        RuntimeError: if another process of the mesh ended or cannot be reached.
        TypeError: if `key` is no random key, `steps`, `every` or `restarts` is not an integer,
            `guide` is None, an argument is an array of text, `mesh` is no mesh, or `start` is
            neither a dict nor a result; for a `RenyiELBO` with a guide of layers.
        ValueError: if `steps`, `every`, `restarts` or `learning_rate` is not positive, a param of
            `start` has another shape, the model and the guide have none of them, a list of starts
            is empty, `mesh` leaves out a process, or no argument has a row for each row of the
            data; for `Rows` without a `batch_size` or with a mesh, or a model with a latent site
            for each row.
    """
    refuse_tracing("fit", key, args, kwargs, start)
    check_key("fit", key)
    check_counts("fit", every=every, restarts=restarts)
    check_program("fit", "guide", guide)
    check_flags("fit", keep_best=keep_best)
    call = checked_call("fit", model, guide, args, kwargs)
    options: dict[str, Any] = {
        "steps": steps, "learning_rate": learning_rate, "optimizer": optimizer, "loss": loss,
        "start": start,
    }  # fmt: skip
    if restarts > 1:
        if isinstance(call.inputs, Rows):
            raise ValueError(
                f"fit: restarts is {restarts}, wanted 1 with Rows; call fit for each key"
            )
        if checkpoint is not None or keep_best or mesh is not None:
            raise ValueError(
                f"fit: restarts is {restarts}, wanted 1 with a checkpoint, keep_best or a mesh; to "
                "keep each of several fits, call fit for each key"
            )
        best = best_fit(key, restarts, model, guide, call, progress=progress, **options)
        warn_of_bad_ending(best, fresh=start is None)
        return best
    devices = checked_mesh("fit", mesh)
    begun = time.perf_counter()
    is_same = isinstance(start, FitResult) and None is not optimizer is start.optimizer
    goes_on: Any = start if is_same else None
    feed: Feed | None = None
    if (source := source_of("fit", call)) is not None and devices is not None:
        raise ValueError(
            "fit: mesh is given with Rows, wanted arrays, whose rows the devices keep; leave "
            "mesh out, or pass rows in memory: *rows.take(range(num))"
        )
    kind = SharedFolder if devices is not None and devices.is_multi_process else RunFolder
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(folder_of("fit", checkpoint, kind))
        if source is not None:
            steps = STEPS if steps is None else steps
            check_count("fit", "steps", steps)
            position = (goes_on and goes_on.position) or (seed_of(key), 0)
            most = chunk_length(steps) if checkpoint is None else min(chunk_length(steps), every)
            feed = stack.enter_context(
                contextlib.closing(Feed(call, *source, position, steps, most))
            )
            call = feed.call
        problem = Problem.set_up("fit", key, model, guide, call, pad=devices is None, **options)
        loop, data, num_data = problem.loop, problem.data, problem.num_data
        steps = problem.steps
        if feed is not None:
            data = feed.start(data, problem.check_rows)
        states = first_states(loop, key, data, problem.starts)
        if goes_on is not None:
            states = [goes_on.state]
        if devices is not None:
            loop, data = divided_loop("fit", loop, devices, states, data, num_data)
        if folder is not None:
            values: Any = problem.starts if goes_on is None else goes_on.state
            folder.identity = loop.identity(
                states, data, (key, values, call.args, call.kwargs), steps=steps,
                learning_rate=learning_rate, guide=type(guide).__name__,
                source=source and source[0].identity(),
                versions={"mesh": devices and devices.size, "steps read": feed and feed.length},
            )  # fmt: skip
        first, outcome = train(
            loop, states, feed or data, steps=steps, held=problem.held, num_data=num_data,
            progress=progress, folder=folder, every=every,
        )  # fmt: skip
    failure, interrupt = outcome.failures.get(0), outcome.interrupt
    state = outcome.state if failure is None else failure.kept
    losses = outcome.losses[0, : None if failure is None else failure.step]
    reverted = False
    if keep_best and failure is interrupt is None:
        drawn = problem.data if feed is None else feed.draws(key, BOUND_DRAWS)
        candidates = [loop.params(s) for s in (state, first)]
        at_end, at_first = bound_losses(key, loop, loss or bound_loss(guide), candidates, drawn)
        if reverted := bool(at_first < at_end or np.isinf(at_end)):
            state = first._replace(rng_key=state.rng_key)
    seconds = time.perf_counter() - begun
    result = FitResult(
        loop.params(state), losses, num_data, state, seconds, problem.optimizer, reverted,
        interrupted=interrupt is not None,
        start_losses=None if outcome.ends is None else outcome.ends[0],
        # The last state with a finite loss is before the step of the last finite loss.
        position=feed and feed.position(max(0, len(losses) - (failure is not None))),
    )  # fmt: skip
    if interrupt is not None:
        steps -= outcome.skipped
        raise Interrupted(
            f"fit: interrupted after {len(losses)} of {steps} steps; the fit so far is the error's "
            f"result. To go on, call fit {_how_to_go_on(steps - len(losses), checkpoint)}",
            result,
        ) from interrupt
    if failure is None:
        warn_of_bad_ending(result, fresh=start is None)
        return result
    if feed is not None:
        call = loop.partition.join(failure.data)
    elif devices is not None:  # the arrays on one device
        failure = failure._replace(data=problem.data)
    raise non_finite_loss(loop, failure, call, steps, result)


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
        *args: the model's positional arguments, or `Rows`, of which rows at random are read.
        loss: the objective instead of the guide's `LayerGuide.bound_loss`. (The loss that an
            `Implicit` guide is fitted with is not a bound.)
        num_draws: number of estimates; one is in memory at a time.
        **kwargs: the model's keyword arguments.

    Raises:
        DataError: if the data are NaN or out of the support, as in `fit`, or the ELBO is not finite
            because another argument is NaN.
        TypeError: if `key` is no random key; under `jax.jit`; for a `RenyiELBO` with a guide of
            layers.
        ValueError: if the names or shapes of params do not fit the model and the guide.
    """
    refuse_tracing("evaluate", key, params, args, kwargs)
    check_key("evaluate", key)
    check_count("evaluate", "num_draws", num_draws, 2)
    call, put_rows = checked_call("evaluate", model, guide, args, kwargs), None
    if (source := source_of("evaluate", call)) is not None:
        call, put_rows = random_feed(key, call, *source, num_draws)
    call, sites = check_data("evaluate", model, call)
    set_up_guide(key, guide, call, model, sites)
    partition, data, _ = split_padded(model, call, guide)
    if put_rows is not None:
        data = put_rows(data, row_check("evaluate", model, call, sites))
    objective = checked_loss("evaluate", guide, loss) or bound_loss(guide)
    params = checked_params("evaluate", params, model, guide, call)
    program = partition, Keyed(objective)
    each = random.split(key, num_draws), np.arange(num_draws)
    values = -np.asarray(losses_of(program, each, params, data))
    if not np.isfinite(values).all() and (why := explain_data(model, call)):
        raise DataError(f"evaluate: {why}")
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(num_draws))


def fit_program(
    key: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    num: int = 100,
    steps: int | None = None,
    learning_rate: float = 0.1,
    optimizer: Any = None,
    loss: ELBO | None = None,
    **kwargs: Any,
) -> tuple[StepsProgram, SVIState, CallArrays]:
    """Return the program of `fit` for a number of steps, to be compiled, timed or inspected.

    `fit` runs such programs one after another. The number of steps is static, as on a GPU::

        run, state, data = inference.fit_program(key, model, guide, x, y, z=z)
        compiled = jax.jit(run).lower(state, data).compile()
        compiled.memory_analysis(), compiled(state, data)

    Args:
        key: random key.
        model: a NumPyro model.
        guide: its guide.
        *args: the model's positional arguments.
        num: number of steps of the program, 200 at most.
        steps: number of steps of the fit, for the default optimiser; see `fit`.
        learning_rate: of the default optimiser; see `fit`.
        optimizer: an optax optimiser instead of the default.
        loss: the objective instead of the guide's; see `fit`.
        **kwargs: the model's keyword arguments.

    Returns:
        A function of a state and data that makes the steps, and returns the new state and an array
        whose first numbers are the losses; the first state; and the arrays of model and guide.

    Raises:
        DataError: as in `fit`.
        TypeError: as in `fit`.
        ValueError: if `num` is not between 1 and 200; and as in `fit`.
    """
    check_key("fit_program", key)
    check_counts("fit_program", num=num)
    if num > MOST_STEPS:
        raise ValueError(
            f"fit_program: num is {num}, wanted at most {MOST_STEPS}; call the program again"
        )
    problem = Problem.set_up(
        "fit_program", key, model, guide,
        checked_call("fit_program", model, guide, args, kwargs), steps=steps,
        learning_rate=learning_rate, optimizer=optimizer, loss=loss, start=None,
    )  # fmt: skip
    loop, data = problem.loop, problem.data

    def run(state: SVIState, data: CallArrays) -> tuple[SVIState, jax.Array]:
        with TRACING:
            return loop.run_chunk(state, num, 0, data)

    return run, loop.init(key, data, {}), data


def _how_to_go_on(steps: int, checkpoint: Any) -> str:
    if checkpoint is not None:
        return "again with the same arguments: it resumes from the last checkpoint"
    return f"with start=error.result and optimizer=error.result.optimizer for {steps} steps"
