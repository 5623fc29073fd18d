"""Deep GPs by Markov chains, as methods of `compare`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import NUTS, init_to_sample

from dgp_ppl._typing import Inputs, Model
from dgp_ppl.comparison._builders import build
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.comparison.methods._guides import fit_coupled, fit_first_stage
from dgp_ppl.inference import (
    SGHMC,
    Chains,
    GlobalInducing,
    MeanField,
    fit_mcem,
    run_mcmc,
    transported,
)

__all__ = ["run_nuts"]

_NUTS_FIELDS = ("potential_energy", "accept_prob", "num_steps")
_MODEL_RATE = 0.3  # learning rate of the model's params relative to the setting's, as in `fit`
_THINNING = 20  # sampler steps between draws
_MOST_WARMUP = 2000  # of SGHMC in the reference space of a fit
_POSITIVE = dist.constraints.positive


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
    first, setting = fit_coupled(task_first, task_first.setting.steps), task.setting
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
    first = fit_first_stage(task_first)
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
