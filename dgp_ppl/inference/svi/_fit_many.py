"""Many fits of one model in one program."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import as_array, check_key, check_kind, check_program, checked_call, short_list
from dgp_ppl._errors import Interrupted
from dgp_ppl._partition import Call, Partition, call_signature
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.inference.programs._data import check_data, check_padding
from dgp_ppl.inference.programs._rows import check_rows_alone
from dgp_ppl.inference.svi._choice import bound_losses, first_states, train
from dgp_ppl.inference.svi._loop import many_fits
from dgp_ppl.inference.svi._result import FitResult, FitResults
from dgp_ppl.inference.svi._setup import (
    Problem,
    Start,
    bound_loss,
    non_finite_loss,
    refuse_tracing,
)


def fit_many(
    keys: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    each: Sequence[str] = (),
    steps: int | None = None,
    learning_rate: float = 0.1,
    optimizer: Any = None,
    loss: ELBO | None = None,
    start: FitResults | Start | Sequence[Start] = None,
    num_rows: Sequence[int] | None = None,
    progress: bool | str = True,
    **kwargs: Any,
) -> FitResults:
    """Fit a guide to a model several times in one program: restarts, splits or a grid.

    The fits differ by their keys, and by the arguments of the model that `each` names. These have
    a leading axis of fits; all fits share the other arguments::

        fits = dgp.fit_many(random.split(key, 5), model, guide, xs, ys, z=zs, each=("x", "y", "z"))
        predictions = [dgp.predict(key, model, guide, f, x_test, z=z) for f, z in zip(fits, zs)]

    Each fit equals a call of `fit` with the same key, up to rounding and what Adam makes of it: its
    first steps have the sign of a gradient, even where that is zero but for rounding. The rates
    decay at once for all fits, when all have settled. On a GPU many small fits take the time of a
    few. On a CPU they take as long as one after the other. A fit that fails does not stop the other
    fits.

    Args:
        keys: random keys, one for each of the R fits.
        model: a NumPyro model.
        guide: its guide. All fits share the arrays that the guide itself holds.
        *args: the model's positional arguments.
        each: names of the arguments with a leading axis of R fits. All arrays of a tree have it,
            and all fits share its functions.
        steps: number of optimiser steps; see `fit`.
        learning_rate: initial learning rate of the default optimiser; see `fit`.
        optimizer: an optax optimiser instead of the default.
        loss: the objective instead of the guide's; see `fit`.
        start: params to start from, or a result, the same for all fits; a list of them, of which
            each fit chooses one (see `fit`); or an earlier `FitResults`, whose fits go on where
            they stopped if `optimizer` is theirs.
        num_rows: numbers of rows of the fits, [R], if the data have different numbers and are
            padded at their ends to a common length, by copies of any row. `observe` masks the
            padding in the model's data plate, which `minibatch` makes.
        progress: show a progress bar with the mean ELBO per datum; a string is its label.
        **kwargs: the model's keyword arguments.

    Returns:
        The params and losses of all fits; ``fits[i]`` is the `FitResult` of one.

    Raises:
        DataError: if the data of a fit are NaN or out of the support, as in `fit`.
        Interrupted: at Ctrl-C. Its `result` has the fits after the last finished steps.
        TypeError: as in `fit`.
        ValueError: if there is no key, `each` names an argument that is not there, or one without
            R values; and as in `fit`.
    """
    refuse_tracing("fit_many", keys, args, kwargs)
    check_kind("fit_many", "each", each, list | tuple, "a tuple of names of arguments")
    fits, _ = _run(
        "fit_many", keys, model, guide, checked_call("fit_many", model, guide, args, kwargs),
        tuple(each), steps=steps,
        learning_rate=learning_rate, optimizer=optimizer, loss=loss, start=start,
        num_rows=num_rows, progress=progress,
    )  # fmt: skip
    return fits


def best_fit(
    key: PRNGKey, num: int, model: Model, guide: Model, call: Call, **options: Any
) -> FitResult:
    """Fit with `num` keys in one program; return the fit with the best bound, or raise."""
    fits, problem = _run("fit", random.split(key, num), model, guide, call, (), **options)
    if not fits.succeeded:
        raise fits.errors[0]
    bounds, loss = np.full(num, -math.inf), options["loss"] or bound_loss(guide)
    candidates = [fits[i].params for i in fits.succeeded]
    bounds[fits.succeeded] = -bound_losses(key, problem.loop, loss, candidates, problem.data)
    return dataclasses.replace(fits[int(np.argmax(bounds))], restart_bounds=bounds)


def _run(
    caller: str, keys: PRNGKey, model: Model, guide: Model, call: Call, each: tuple[str, ...], *,
    steps: int | None, learning_rate: float, optimizer: Any, loss: ELBO | None,
    start: FitResults | Start | Sequence[Start], progress: bool | str,
    num_rows: Sequence[int] | None = None,
) -> tuple[FitResults, Problem]:  # fmt: skip
    """Fit with all keys; returns the fits, and the problem of the first one."""
    begun = time.perf_counter()
    check_program(caller, "guide", guide)
    num = _number_of_keys(caller, keys)
    stacked = _stacked(caller, model, call, each, num)

    def part(i: int) -> Call:
        """Return the call of one fit."""
        return Call(*jax.tree.map(lambda a, own: a[i] if own else a, tuple(call), stacked))

    several = isinstance(start, FitResults)
    if several and len(start) != num:
        raise ValueError(
            f"{caller}: start has {len(start)} fits, wanted one for each of {num} keys"
        )
    problem = Problem.set_up(
        caller, keys[0], model, guide, part(0), steps=steps, learning_rate=learning_rate,
        optimizer=optimizer, loss=loss, start=start, pad=not each,
    )  # fmt: skip
    steps = problem.steps
    for i in range(1, num) if each else ():
        check_data(caller, model, part(i))
    data = Partition.split(model, call, guide)[1] if each else problem.data
    axes = [*jax.tree.leaves(stacked), *(False for _ in jax.tree.leaves(data[2:]))]
    num_data: Any = problem.num_data
    if num_rows is not None:
        num_data = _checked_num_rows(caller, num_rows, num, problem.num_data)
        check_padding(caller, model, part(0))
        check_rows_alone(caller, model, part(0), guide)
        axes = [*axes[: len(jax.tree.leaves(data[:3]))], True]
        data = data._replace(num_rows=jnp.asarray(num_data))
    loop = many_fits(problem.loop, tuple(axes), num)
    states = first_states(loop, keys, data, problem.starts, each=several)
    if several and None is not optimizer is start.optimizer:
        states = [start.state]
    _, outcome = train(
        loop, states, data, steps=steps, held=problem.held, num_data=num_data, progress=progress,
        label=f"{num} fits",
    )  # fmt: skip
    state, losses = outcome.state, outcome.losses
    for i, failure in outcome.failures.items():
        state = jax.tree.map(lambda a, b, i=i: a.at[i].set(b), state, failure.kept)
        losses[i, failure.step :] = np.nan
    result = FitResults(
        loop.params(state), losses, num_data, state, time.perf_counter() - begun,
        problem.optimizer, interrupted=outcome.interrupt is not None, start_losses=outcome.ends,
    )  # fmt: skip
    errors = {
        i: non_finite_loss(loop.one, failure, part(i), steps, result.part(i, failure.step))
        for i, failure in sorted(outcome.failures.items())
    }
    result = dataclasses.replace(result, errors=errors)
    if outcome.interrupt is not None:
        steps -= outcome.skipped
        raise Interrupted(
            f"{caller}: interrupted after {losses.shape[1]} of {steps} steps; the fits so far are "
            "the error's result. To go on, call fit_many with start=error.result and "
            f"optimizer=error.result.optimizer for {steps - losses.shape[1]} steps",
            result,
        ) from outcome.interrupt
    return result, problem


def _number_of_keys(caller: str, keys: PRNGKey) -> int:
    check_kind(
        caller, "keys", keys, jax.Array | np.ndarray, "keys, such as jax.random.split(key, 4)"
    )
    typed = hasattr(keys, "dtype") and jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    shape = jnp.shape(keys)
    if len(shape) != (1 if typed else 2) or not shape[0]:
        raise ValueError(
            f"{caller}: keys has shape {shape}, wanted one random key for each fit, such as "
            "jax.random.split(key, 4)"
        )
    check_key(caller, keys[0])
    return shape[0]


def _checked_num_rows(caller: str, num_rows: Any, num: int, most: int) -> np.ndarray:
    """Return the numbers of rows of padded data, [R]."""
    found = as_array(caller, "num_rows", num_rows)
    is_whole = np.issubdtype(found.dtype, np.integer)
    if found.shape != (num,) or not is_whole or found.min() < 1 or found.max() > most:
        raise ValueError(
            f"{caller}: num_rows is {num_rows}, wanted {num} numbers, one for each fit, from 1 to "
            f"{most}, the size of the data plate"
        )
    return found


def _stacked(
    caller: str, model: Model, call: Call, each: tuple[str, ...], num: int
) -> tuple[Any, Any]:
    """Return which arrays of the args and kwargs have an axis of fits; None for static values."""
    names = list(call_signature(model).parameters)
    arguments = dict(zip(names, call.args, strict=False)) | call.kwargs
    if unknown := [n for n in each if n not in arguments]:
        raise ValueError(
            f"{caller}: each names {short_list(unknown)}, wanted some of the arguments "
            f"{short_list(sorted(arguments))}"
        )
    for name in each:
        shapes = [jnp.shape(a) for a in jax.tree.leaves(arguments[name]) if not callable(a)]
        if not shapes or any(not s or s[0] != num for s in shapes):
            raise ValueError(
                f"{caller}: argument {name!r} has shape {', '.join(map(str, shapes)) or 'none'}, "
                f"wanted a leading axis of {num} fits, as each names it"
            )

    def marked(name: str, value: Any) -> Any:
        is_array = lambda a: isinstance(a, jax.Array | np.ndarray)  # noqa: E731
        return jax.tree.map(lambda a: name in each if is_array(a) else None, value)

    names += [""] * len(call.args)  # of arguments beyond the named ones
    args = tuple(map(marked, names, call.args))
    return args, {n: marked(n, a) for n, a in call.kwargs.items()}
