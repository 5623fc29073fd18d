"""The sparse and deep GP methods of `compare`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import NUTS, init_to_sample

from dgp_ppl import initialize, models
from dgp_ppl._errors import NonFiniteLossError, UnsuitableError
from dgp_ppl._typing import Inputs, Model, Params, PRNGKey
from dgp_ppl.comparison._builders import Built, build, deep_gp, kernel_maker
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.inference import (
    SGHMC,
    Chains,
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
    fit_mcem,
    freeze,
    run_mcmc,
    transported,
)
from dgp_ppl.models import KernelMaker

__all__ = ["fit_collapsed", "run_nuts"]

_NUTS_FIELDS = ("potential_energy", "accept_prob", "num_steps")
_EVALUATION_ROWS = 10_000  # rows of a minibatch when the ELBO is evaluated
_EVALUATION_DRAWS = 20
_NOISY_EVALUATION_DRAWS = 100  # for guides whose draws of hidden layers make the ELBO noisy
_MODEL_RATE = 0.3  # learning rate of the model's params relative to the setting's, as in `fit`
_DSPP_LOSS = PredictiveELBO(elbo_share=0.5, num_particles=4)
_THINNING = 20  # sampler steps between draws
_MOST_WARMUP = 2000  # of SGHMC in the reference space of a fit
_POSITIVE = dist.constraints.positive


@register("sgpr", regression_only=True)
def _sgpr(task: Task) -> Fitted:
    """Fit sparse GP regression with all rows at every step (Titsias 2009)."""
    task_z, task_fit = task.split()
    z = initialize.inducing_inputs(task_z.key, task.x, task.setting.inducing)
    return fit_collapsed(task_fit, z, kernel_maker(task))


def fit_collapsed(
    task: Task,
    z: Array,
    kernel: KernelMaker,
    fixed: bool = False,
) -> Fitted:
    """Fit `models.sgpr`, which integrates the inducing values out in closed form.

    Args:
        task: a regression task.
        z: initial inducing inputs, [M, D].
        kernel: makes the kernel.
        fixed: whether the inducing inputs stay at z.
    """
    key_fit, key_elbo = random.split(task.key)
    x, y, setting = task.x, task.y, task.setting
    frozen = {"l1.z": z} if fixed else {}
    model = freeze(models.sgpr, frozen) if fixed else models.sgpr
    kwargs: dict[str, Any] = {"z": z, "kernel": kernel}
    result = fit(
        key_fit, model, _empty_guide, x, y, progress=task.progress, steps=setting.steps,
        learning_rate=setting.learning_rate, **kwargs,
    )  # fmt: skip
    params = {**result.params, **frozen}
    elbo, _ = evaluate(key_elbo, models.sgpr, _empty_guide, params, x, y, num_draws=2, **kwargs)
    best = models.optimal_inducing(params, x, y, kernel=kernel)
    result = dataclasses.replace(result, params=best)
    return Fitted(models.svgp, MeanField(models.svgp), kwargs, result, elbo / len(y))


def _svgp_model(task: Task) -> Built:
    return deep_gp(task.with_setting(depth=1))


def _mean_fields(
    tasks: Sequence[Task], make: Callable[[Task], Built] = build, **options: Any
) -> list[Fitted | NonFiniteLossError | UnsuitableError]:
    """Fit `MeanField` to several tasks in one program; `options` are those of `fit`."""
    tasks_model, tasks_fit = zip(*(task.split() for task in tasks), strict=True)
    builts = [make(task) for task in tasks_model]
    keys = [random.split(task.key) for task in tasks_fit]
    model, setting = builts[0].model, tasks[0].setting
    guide = MeanField(model)
    sizes = [task.num_data for task in tasks]
    longest = max(sizes)
    x = np.stack([np.pad(t.x, ((0, longest - t.num_data), (0, 0)), mode="edge") for t in tasks])
    y = np.stack([np.pad(t.y, (0, longest - t.num_data), mode="edge") for t in tasks])
    kwargs, each = _stacked([built.kwargs for built in builts])
    fits = fit_many(
        jnp.stack([key_fit for key_fit, _ in keys]), model, guide, x, y, each=("x", "y", *each),
        steps=setting.steps, batch_size=setting.batch, learning_rate=setting.learning_rate,
        num_rows=None if len(set(sizes)) == 1 else sizes, progress=tasks[0].progress, **options,
        **kwargs,
    )  # fmt: skip
    return [
        fits.errors[i] if i in fits.errors else _evaluated(key_elbo, task, guide, built, fits[i])
        for i, ((_, key_elbo), task, built) in enumerate(zip(keys, tasks, builts, strict=True))
    ]


def _stacked(kwargs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return arguments for all tasks, and the names of those with a leading axis of tasks."""
    stacked, each = dict(kwargs[0]), []
    for name, value in kwargs[0].items():
        if any(not callable(a) and hasattr(a, "shape") for a in jax.tree.leaves(value)):
            each.append(name)
            stacked[name] = jax.tree.map(
                lambda a, *others: a if callable(a) else jnp.stack([a, *others]),
                *(k[name] for k in kwargs),
            )
    return stacked, tuple(each)


@register("svgp", streams=True, in_one_program=partial(_mean_fields, make=_svgp_model))
def _svgp(task: Task) -> Fitted:
    """Fit a sparse variational GP in minibatches (Hensman et al. 2013)."""
    task_model, task_fit = task.split()
    built = _svgp_model(task_model)
    return _fit_guide(task_fit, MeanField(built.model), built)


@register("dsvi", streams=True, in_one_program=_mean_fields)
def _dsvi(task: Task) -> Fitted:
    """Fit a deep GP by doubly stochastic variational inference (Salimbeni & Deisenroth 2017)."""
    task_model, task_fit = task.split()
    built = build(task_model)
    return _fit_guide(task_fit, MeanField(built.model), built)


@register("dspp", streams=True, in_one_program=partial(_mean_fields, loss=_DSPP_LOSS))
def _dspp(task: Task) -> Fitted:
    """Fit a deep GP to the predictive density and the ELBO (after Jankowiak et al. 2020)."""
    task_model, task_fit = task.split()
    built = build(task_model)
    return _fit_guide(task_fit, MeanField(built.model), built, loss=_DSPP_LOSS)


@register("decoupled", streams=True)
def _decoupled(task: Task) -> Fitted:
    """Fit a deep GP with decoupled inducing inputs (Havasi et al. 2018).

    The mean has twice as many inducing inputs as the covariance.
    """
    task_model, task_fit = task.split()
    built = build(task_model)
    # The same key gives a deep kernel the same network.
    for_mean = build(task_model.with_setting(inducing=2 * task.setting.inducing))
    guide = Decoupled(built.model, z_mean=for_mean.inducing)
    return _fit_guide(task_fit, guide, built)


@register("global_inducing", streams=True)
def _global_inducing(task: Task) -> Fitted:
    """Fit a deep GP with coupled layers; the first half of the steps fits a mean field."""
    return _coupled(task, task.setting.steps)


def _coupled(task: Task, steps: int) -> Fitted:
    """Fit a mean field for half of the task's steps, then the coupled guide: `steps` in all."""
    task_first, task_z, task_start, task_fit = task.split(4)
    first = _dsvi(task_first.with_setting(steps=-(-task.setting.steps // 2)))
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
    """Fit a deep GP with a normalising-flow posterior, based on the coupled guide.

    The steps are divided as those of `diffusion`.
    """
    return _on_global_inducing(task, Flow)


def _on_global_inducing(task: Task, make: Callable[..., LayerGuide], **options: Any) -> Fitted:
    """Fit a guide that is based on the coupled guide; `options` are those of `fit`.

    The guide takes the place of the last steps of `global_inducing`. The base and the
    hyperparameters go on at their rate there: at a lower one their steps would be missing.
    """
    first = _coupled(task, -(-3 * task.setting.steps // 4))  # of the key of `global_inducing`
    task_fit = dataclasses.replace(task, key=random.fold_in(task.key, task.setting.steps))
    guide = make(first.model, base=first.guide).changed(rate=GlobalInducing.rate)
    return _continue_fit(task_fit, guide, first, first.result.params, **options)


@register("implicit", streams=True)
def _implicit(task: Task) -> Fitted:
    """Fit a deep GP with an implicit posterior (Yu et al. 2019)."""
    task_model, task_fit = task.split()
    built = build(task_model)
    guide = Implicit(built.model)
    return _fit_guide(task_fit, guide, built, num_draws=_NOISY_EVALUATION_DRAWS)


@register("sghmc")
def _sghmc(task: Task) -> Fitted:
    """Fit a deep GP by stochastic-gradient HMC with moving-window MCEM (Havasi et al. 2018)."""
    return _mcem(task, expected=0.0)


@register("sghmc_mixed")
def _sghmc_mixed(task: Task) -> Fitted:
    """Fit as `sghmc` does, to the mean of the published objective and the expected log density."""
    return _mcem(task, expected=0.5)


def _mcem(task: Task, expected: float) -> Fitted:
    """Fit by moving-window MCEM; `expected` is that of `fit_mcem`."""
    task_model, task_fit = task.split()
    built, setting = build(task_model), task.setting
    # Sampler steps are cheap; every draw that is kept costs one pass of each prediction.
    result = fit_mcem(
        task_fit.key, built.model, task.x, task.y, steps=setting.steps, expected=expected,
        learning_rate=_MODEL_RATE * setting.learning_rate, num_samples=setting.draws,
        num_chains=setting.chains, thinning=_THINNING, batch_size=setting.batch,
        progress=task.progress, **built.kwargs,
    )  # fmt: skip
    return Fitted(built.model, None, built.kwargs, result, chains=result.chains)


@register("sghmc_coupled")
def _sghmc_coupled(task: Task) -> Fitted:
    """Sample a deep GP by SGHMC at the hyperparameters of a coupled fit, in its reference space."""
    task_first, task_run = task.split()
    first, setting = _global_inducing(task_first), task.setting
    assert isinstance(first.guide, GlobalInducing)
    program = transported(first.model, first.guide, first.result.params)
    chains = run_mcmc(
        task_run.key, SGHMC(program, init_strategy=init_to_sample), task.x, task.y,
        num_warmup=min(_MOST_WARMUP, setting.steps), num_samples=setting.draws,
        num_chains=setting.chains, thinning=_THINNING, batch_size=setting.batch,
        progress=task.progress, **first.kwargs,
    )  # fmt: skip
    return _sampled(first, chains)


@register("nuts")
def _nuts(task: Task) -> Fitted:
    """Sample a deep GP by NUTS at the hyperparameters of a mean-field fit."""
    return _transported_nuts(task, sample_hyperparameters=False)


@register("nuts_priors")
def _nuts_priors(task: Task) -> Fitted:
    """Sample a deep GP and its hyperparameters by NUTS.

    The hyperparameters have log-normal priors about their initial values.
    """
    return _transported_nuts(task, sample_hyperparameters=True)


def _transported_nuts(task: Task, *, sample_hyperparameters: bool) -> Fitted:
    """Sample by NUTS in the reference space of a mean-field fit."""
    task_first, task_run = task.split()
    first = _dsvi(task_first)
    model, params = first.model, first.result.params
    assert isinstance(first.guide, MeanField)
    if sample_hyperparameters:
        model = _Lifted(model, _log_normal_priors(model, task.x, first.kwargs))
    program = transported(model, first.guide, params)
    chains = run_nuts(task_run, NUTS(program, init_strategy=init_to_sample), first.kwargs)
    return _sampled(dataclasses.replace(first, model=model), chains)


def _sampled(first: Fitted, chains: Chains) -> Fitted:
    """Return draws at the params of a fit in whose reference space the chains moved."""
    # Hidden unit noise belongs to the training rows, reference values to the sampler.
    kept = {n: a for n, a in chains.samples.items() if not n.endswith((".reference", ".eps"))}
    chains = dataclasses.replace(chains, samples=kept)
    return Fitted(first.model, None, first.kwargs, first.result, chains=chains)


class _Lifted(handlers.lift):
    """`handlers.lift` that can be pickled: by its arguments, without the model's annotations."""

    def __reduce__(self) -> Any:
        return type(self), (self.fn, self.prior)


def run_nuts(task: Task, kernel: NUTS, kwargs: dict[str, Any]) -> Chains:
    """Run NUTS on all rows, with as many warm-up steps as draws.

    Args:
        task: the task.
        kernel: the NUTS kernel of a model.
        kwargs: the model's keyword arguments.
    """
    setting = task.setting
    return run_mcmc(
        task.key, kernel, task.x, task.y, num_warmup=setting.draws, num_samples=setting.draws,
        num_chains=setting.chains, extra_fields=_NUTS_FIELDS, progress=task.progress, **kwargs,
    )  # fmt: skip


def _log_normal_priors(
    model: Model, x: Inputs, kwargs: dict[str, Any]
) -> dict[str, dist.Distribution]:
    """Return log-normal priors of scale 1 about the initial values of positive params."""
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(x, **kwargs)
    return {
        name: dist.LogNormal(jnp.log(site["value"]), 1.0).to_event(jnp.ndim(site["value"]))
        for name, site in trace.items()
        if site["type"] == "param" and site["kwargs"].get("constraint") is _POSITIVE
    }


def _fit_guide(
    task: Task,
    guide: LayerGuide,
    built: Built,
    num_draws: int = _EVALUATION_DRAWS,
    **options: Any,
) -> Fitted:
    """Fit a guide in minibatches and evaluate its ELBO; `options` are those of `fit`."""
    key_fit, key_elbo = random.split(task.key)
    setting = task.setting
    if built.start:
        options = {"start": built.start, **options}
    result = fit(
        key_fit, built.model, guide, *task.data, steps=setting.steps, batch_size=setting.batch,
        learning_rate=setting.learning_rate, progress=task.progress, **options, **built.kwargs,
    )  # fmt: skip
    return _evaluated(key_elbo, task, guide, built, result, num_draws)


def _evaluated(
    key: PRNGKey,
    task: Task,
    guide: LayerGuide,
    built: Built,
    result: FitResult,
    num_draws: int = _EVALUATION_DRAWS,
) -> Fitted:
    """Return a fit with its ELBO."""
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
        task.with_setting(steps=max(1, task.setting.steps - len(done.losses))), guide, built,
        num_draws=_NOISY_EVALUATION_DRAWS, start=start, keep_best=True,
        **options,
    )  # fmt: skip
    result = dataclasses.replace(
        second.result,
        losses=np.concatenate([done.losses, second.result.losses]),
        seconds=done.seconds + second.result.seconds,
    )
    return dataclasses.replace(second, result=result)


def _empty_guide(*args: Any, **kwargs: Any) -> None:
    """Guide a model without latent sites."""
