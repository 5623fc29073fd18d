"""Sparse and deep GPs with guides, as methods of `compare`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dgp_ppl import initialize
from dgp_ppl._errors import NonFiniteLossError, UnsuitableError
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.comparison._builders import Built, build, kernel_maker
from dgp_ppl.comparison._kernels import LocalKernel
from dgp_ppl.comparison._method import METHODS, Fitted, Task, register
from dgp_ppl.comparison.methods._sparse import fit_exact
from dgp_ppl.core import NearRows
from dgp_ppl.inference import (
    Decoupled,
    Diffusion,
    DiffusionELBO,
    FitResult,
    Flow,
    GlobalInducing,
    Implicit,
    LayerGuide,
    MeanField,
    PredictiveELBO,
    evaluate,
    fit,
    fit_many,
)
from dgp_ppl.prediction import tune_local

_EVALUATION_ROWS = 10_000  # rows of a minibatch when the ELBO is evaluated
_EVALUATION_DRAWS = 20
_NOISY_EVALUATION_DRAWS = 100  # for guides whose draws of hidden layers make the ELBO noisy
_SHORTER = 0.25  # lengthscales of the second start, relative to the first
_STEPS = 3000  # that show whether a deep GP beats one layer
_FEW_ROWS = 1000  # of sets that one layer may fit better, or exactly, in seconds
_DRAWS = 4  # of the log predictive density, at each step


def fit_first_stage(task: Task) -> Fitted:
    """Fit a mean field from one start: what several starts gain later stages is not measured."""
    return _fit_mean_field(task, start=[{}])


def _fit_mean_field(task: Task, start: list[Params] | None = None, **options: Any) -> Fitted:
    """Fit `MeanField` to a task; `options` are keywords of `fit`."""
    task_model, task_fit = task.split()
    built = build(task_model)
    start = _starts(task_model, built) if start is None else start
    return _fit_guide(task_fit, MeanField(built.model), built, start=start, **options)


def _starts(task: Task, built: Built) -> list[Params]:
    """Return what the fit of a mean field may start from: itself, and shorter lengthscales."""
    setting = task.setting
    # What a second start gains is measured for this model alone.
    if setting.as_published or setting.model != "deep_gp" or len(built.inducing) == 1:
        return [{}]
    x = built.inducing[0][:1]
    shorter = initialize.shorter_lengthscales(built.model, x, factor=_SHORTER, **built.kwargs)
    return [{}, shorter]


def _mean_fields(
    tasks: Sequence[Task], **options: Any
) -> list[Fitted | NonFiniteLossError | UnsuitableError]:
    """Fit `MeanField` to several tasks in one program; `options` are keywords of `fit_many`."""
    tasks_model, tasks_fit = zip(*(task.split() for task in tasks), strict=True)
    builts = [build(task) for task in tasks_model]
    if len({tuple(z.shape for z in built.inducing) for built in builts}) > 1:
        raise UnsuitableError("the splits have other numbers of distinct rows")
    keys = [random.split(task.key) for task in tasks_fit]
    model, setting = builts[0].model, tasks[0].setting
    guide = MeanField(model)
    sizes = [task.num_data for task in tasks]
    longest = max(sizes)
    x = np.stack([np.pad(t.x, ((0, longest - t.num_data), (0, 0)), mode="edge") for t in tasks])
    y = np.stack([np.pad(t.y, (0, longest - t.num_data), mode="edge") for t in tasks])
    kwargs, each = dict(builts[0].kwargs), ["x", "y"]
    for name, value in kwargs.items():
        if any(not callable(a) and hasattr(a, "shape") for a in jax.tree.leaves(value)):
            each.append(name)
            kwargs[name] = jax.tree.map(
                lambda a, *others: a if callable(a) else jnp.stack([a, *others]),
                *(built.kwargs[name] for built in builts),
            )
    fits = fit_many(
        jnp.stack([key_fit for key_fit, _ in keys]), model, guide, x, y, each=each,
        steps=setting.steps, batch_size=setting.batch, learning_rate=setting.learning_rate,
        num_rows=None if len(set(sizes)) == 1 else sizes, progress=tasks[0].progress,
        start=_starts(tasks[0], builts[0]), **options, **kwargs,
    )  # fmt: skip
    return [
        fits.errors[i] if i in fits.errors else _evaluated(key_elbo, task, guide, built, fits[i])
        for i, ((_, key_elbo), task, built) in enumerate(zip(keys, tasks, builts, strict=True))
    ]


def _dsvi_in_one_program(tasks: Sequence[Task]) -> list[Any]:
    found = zip(tasks, _mean_fields(tasks), strict=True)
    return [_best_depth(t, f) if isinstance(f, Fitted) else f for t, f in found]


@register("dsvi", streams=True, in_one_program=_dsvi_in_one_program)
def _dsvi(task: Task) -> Fitted:
    """Fit a deep GP by doubly stochastic variational inference (Salimbeni & Deisenroth 2017).

    With ``depth=1`` it is a sparse variational GP in minibatches, SVGP (Hensman et al. 2013). Where
    `sgpr` has the higher bound of at most 1,000 rows, which may be smooth, it returns that.
    """
    return _best_depth(task, _fit_mean_field(task))


def _best_depth(task: Task, deep: Fitted) -> Fitted:
    """Return the fit of one layer instead if its bound is higher, of few rows and enough steps."""
    setting = task.setting
    is_plain = (setting.model, setting.likelihood in (None, "gaussian")) == ("deep_gp", True)
    is_short = task.is_streamed or task.num_data > _FEW_ROWS or task.steps < _STEPS
    if is_short or not is_plain or setting.depth == 1 or setting.as_published:
        return deep
    one = METHODS["sgpr"](task)
    bounds: Any = one.elbo_per_datum, deep.elbo_per_datum
    return one if bounds[0] > bounds[1] else deep


@register("local", regression_only=True)
def _local(task: Task) -> Fitted:
    """Fit a deep GP beside a rough process of near rows; see `dgp_ppl.local`.

    With ``depth=1`` and at most 1,000 rows it is the exact GP of both, in which g knows all rows.
    """
    setting = task.setting
    if (setting.model, setting.likelihood in (None, "gaussian")) != ("deep_gp", True):
        raise UnsuitableError("local needs the model deep_gp and the likelihood gaussian")
    if setting.depth == 1 and task.num_data <= _FEW_ROWS:
        return fit_exact(task, LocalKernel(kernel_maker(task)))
    task_model, task_fit = task.split()
    built = build(task_model)
    built.kwargs["local"] = NearRows(task.x, task.y)
    guide = MeanField(built.model)

    def tuned(fit: FitResult) -> FitResult:
        params = tune_local(task.key, built.model, guide, fit, **built.kwargs)
        return dataclasses.replace(fit, params=params)

    return _fit_guide(task_fit, guide, built, start=_starts(task_model, built), then=tuned)


def _predictive_loss(task: Task) -> PredictiveELBO:
    return PredictiveELBO(elbo_share=task.setting.elbo_share, num_particles=_DRAWS)


@register(
    "dspp",
    streams=True,
    in_one_program=lambda tasks: _mean_fields(tasks, loss=_predictive_loss(tasks[0])),
)
def _dspp(task: Task) -> Fitted:
    """Fit a deep GP to the predictive density and the ELBO (after Jankowiak et al. 2020).

    With ``elbo_share=0`` it is fitted to the predictive density alone, as in the paper.
    """
    return _fit_mean_field(task, loss=_predictive_loss(task))


@register("decoupled", streams=True)
def _decoupled(task: Task) -> Fitted:
    """Fit a deep GP with twice as many inducing inputs for the mean (Havasi et al. 2018)."""
    task_model, task_fit = task.split()
    built = build(task_model)
    for_mean = build(task_model.with_setting(inducing=2 * task.setting.inducing))
    guide = Decoupled(built.model, z_mean=for_mean.inducing)
    return _fit_guide(task_fit, guide, built)


@register("global_inducing", streams=True)
def _global_inducing(task: Task) -> Fitted:
    """Fit a deep GP with coupled layers; the first half of the steps fits a mean field."""
    return fit_coupled(task, task.steps)


def fit_coupled(task: Task, steps: int) -> Fitted:
    """Fit a mean field for half of the task's steps, then the coupled guide: `steps` in all."""
    task_first, task_z, task_start, task_fit = task.split(4)
    first = fit_first_stage(task_first.with_setting(steps=-(-task.steps // 2)))
    z = initialize.inducing_inputs(task_z.key, task.x, task.setting.inducing)
    guide = GlobalInducing(first.model, z)
    assert isinstance(first.guide, MeanField)
    start = guide.start_from(
        task_start.key, first.guide, first.result.params, initialize.some_rows(task_z.key, task.x),
        **first.kwargs,
    )  # fmt: skip
    return _continue_fit(task_fit.with_setting(steps=steps), guide, first, start)


@register("diffusion", streams=True)
def _diffusion(task: Task) -> Fitted:
    """Fit a deep GP with a denoising diffusion posterior, based on the coupled guide.

    Half of the steps fit a mean field, a quarter the coupled guide, and the last quarter all.
    """
    return _on_global_inducing(task, partial(Diffusion, steps=4), loss=DiffusionELBO(4))


@register("flow", streams=True)
def _flow(task: Task) -> Fitted:
    """Fit a normalising-flow posterior based on the coupled guide, in the steps of `diffusion`."""
    return _on_global_inducing(task, Flow)


def _on_global_inducing(task: Task, make: Callable[..., LayerGuide], **options: Any) -> Fitted:
    """Fit a guide that is based on the coupled guide; `options` are keywords of `fit`.

    The guide takes the place of the last steps of `global_inducing`. The base and the
    hyperparameters go on at their rate there: at a lower one their steps would be missing.
    """
    first = fit_coupled(task, -(-3 * task.steps // 4))  # of the key of `global_inducing`
    task_fit = dataclasses.replace(task, key=random.fold_in(task.key, task.steps))
    guide = make(first.model, base=first.guide).replace(rate=GlobalInducing.rate)
    return _continue_fit(task_fit, guide, first, first.result.params, **options)


@register("implicit", streams=True)
def _implicit(task: Task) -> Fitted:
    """Fit a deep GP with an implicit posterior (Yu et al. 2019)."""
    task_model, task_fit = task.split()
    built = build(task_model)
    guide = Implicit(built.model)
    return _fit_guide(task_fit, guide, built, num_draws=_NOISY_EVALUATION_DRAWS)


def _fit_guide(
    task: Task, guide: LayerGuide, built: Built, num_draws: int = _EVALUATION_DRAWS,
    then: Callable[[FitResult], FitResult] = lambda fit: fit, **options: Any,
) -> Fitted:  # fmt: skip
    """Fit a guide in minibatches, change the fit, and evaluate it; `options` are for `fit`."""
    key_fit, key_elbo = random.split(task.key)
    setting = task.setting
    result = fit(
        key_fit, built.model, guide, *task.data, steps=setting.steps, batch_size=setting.batch,
        learning_rate=setting.learning_rate, progress=task.progress, **options, **built.kwargs,
    )  # fmt: skip
    return _evaluated(key_elbo, task, guide, built, then(result), num_draws)


def _evaluated(
    key: PRNGKey, task: Task, guide: LayerGuide, built: Built, result: FitResult,
    num_draws: int = _EVALUATION_DRAWS,
) -> Fitted:  # fmt: skip
    elbo, _ = evaluate(
        key, built.model, guide, result.params, *task.data, batch_size=_EVALUATION_ROWS,
        num_draws=num_draws, **built.kwargs,
    )  # fmt: skip
    return Fitted(built.model, guide, built.kwargs, result, elbo / task.num_data)


def _continue_fit(
    task: Task, guide: LayerGuide, first: Fitted, start: Params, **options: Any
) -> Fitted:
    """Spend the remaining steps on another guide; the losses of both fits are joined."""
    done = first.result
    built = Built(first.model, first.kwargs)
    second = _fit_guide(
        task.with_setting(steps=max(1, task.steps - len(done.losses))), guide, built,
        num_draws=_NOISY_EVALUATION_DRAWS, start=start, keep_best=True,
        **options,
    )  # fmt: skip
    result = dataclasses.replace(
        second.result,
        losses=np.concatenate([done.losses, second.result.losses]),
        seconds=done.seconds + second.result.seconds,
    )
    return dataclasses.replace(second, result=result)
