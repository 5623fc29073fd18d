"""Deep GPs by Markov chains, as methods of `compare`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from numpyro.infer import NUTS, init_to_median, init_to_sample

from dgp_ppl import models
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison._builders import build, kernel_maker, with_spare_rows
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.comparison.methods._guides import fit_coupled, fit_first_stage
from dgp_ppl.inference import (
    SGHMC,
    Chains,
    GlobalInducing,
    MCEMResult,
    MeanField,
    fit_mcem,
    run_mcmc,
    transported,
)
from dgp_ppl.linalg._threads import one_blas_thread

_NUTS_FIELDS = ("potential_energy", "accept_prob", "num_steps")
_MODEL_RATE = 0.3  # learning rate of the model's params relative to the setting's, as in `fit`
_THINNING = 20  # sampler steps between draws
_MOST_ROWS, _TREE_DEPTH = 300, 6  # of a deep GP without inducing inputs
_BLOCK = 8  # its number of rows is a multiple, so that runs share programs
_MOST_WARMUP = 2000  # of SGHMC in the reference space of a fit


@register("sghmc")
def _sghmc(task: Task) -> Fitted:
    """Fit a deep GP by stochastic-gradient HMC with moving-window MCEM (Havasi et al. 2018)."""
    task_model, task_fit = task.split()
    built, setting = build(task_model), task.setting
    # Sampler steps are cheap; every draw that is kept costs one pass of each prediction.
    result = fit_mcem(
        task_fit.key, built.model, task.x, task.y, steps=task.steps,
        learning_rate=_MODEL_RATE * setting.learning_rate, num_samples=setting.draws,
        num_chains=setting.chains, thinning=_THINNING, batch_size=setting.batch,
        progress=task.progress, **built.kwargs,
    )  # fmt: skip
    return Fitted(built.model, None, built.kwargs, result, chains=result.chains)


@register("sghmc_coupled")
def _sghmc_coupled(task: Task) -> Fitted:
    """Sample a deep GP by SGHMC at the hyperparameters of a coupled fit, in its reference space."""
    task_first, task_run = task.split()
    first, setting = fit_coupled(task_first, task_first.steps), task.setting
    assert isinstance(first.guide, GlobalInducing)
    program = transported(first.model, first.guide, first.result.params)
    chains = run_mcmc(
        task_run.key, SGHMC(program, init_strategy=init_to_sample), task.x, task.y,
        num_warmup=min(_MOST_WARMUP, task.steps), num_samples=setting.draws,
        num_chains=setting.chains, thinning=_THINNING, batch_size=setting.batch,
        progress=task.progress, **first.kwargs,
    )  # fmt: skip
    return _sampled(first, chains)


@register("nuts")
def _nuts(task: Task) -> Fitted:
    """Sample a deep GP by NUTS on all rows, in the reference space of a mean-field fit.

    The hyperparameters stay at the fit's. There are as many warm-up steps as draws.
    """
    task_first, task_run = task.split()
    first, setting = fit_first_stage(task_first), task.setting
    assert isinstance(first.guide, MeanField)
    program = transported(first.model, first.guide, first.result.params)
    chains = run_mcmc(
        task_run.key, NUTS(program, init_strategy=init_to_sample), task.x, task.y,
        num_warmup=setting.draws, num_samples=setting.draws, num_chains=setting.chains,
        extra_fields=_NUTS_FIELDS, progress=task.progress, **first.kwargs,
    )  # fmt: skip
    return _sampled(first, chains)


@register("bayes", regression_only=True)
def _bayes(task: Task) -> Fitted:
    """Sample a deep GP without inducing inputs, and its hyperparameters, by NUTS in float64.

    For some hundreds of rows, such as runs of a simulator. The setting ``model`` has no effect.
    """
    if task.num_data > _MOST_ROWS:
        raise UnsuitableError(
            f"bayes: {task.num_data} training rows, wanted at most {_MOST_ROWS}, as the cost grows "
            "with their cube; use dsvi"
        )
    setting = task.setting
    x, y, counts = with_spare_rows(task, -(-task.num_data // _BLOCK) * _BLOCK)
    kwargs: dict[str, Any] = {"depth": setting.depth, "kernel": kernel_maker(task)}
    kwargs["counts"] = counts
    sampler = NUTS(models.exact, max_tree_depth=_TREE_DEPTH, init_strategy=init_to_median)
    with jax.enable_x64(True), one_blas_thread():
        chains = run_mcmc(
            task.key, sampler, x, y, num_warmup=setting.draws, num_samples=setting.draws,
            num_chains=setting.chains, extra_fields=_NUTS_FIELDS, progress=task.progress, **kwargs,
        )  # fmt: skip
    energy = chains.fields["potential_energy"].ravel()
    result = MCEMResult({}, chains, energy, chains.seconds)
    kwargs["given"] = x, y
    return Fitted(models.exact, None, kwargs, result, chains=chains)


def _sampled(first: Fitted, chains: Chains) -> Fitted:
    """Return draws at the params of a fit in whose reference space the chains moved."""
    # Hidden unit noise belongs to the training rows, reference values to the sampler.
    kept = {n: a for n, a in chains.samples.items() if not n.endswith((".reference", ".eps"))}
    chains = dataclasses.replace(chains, samples=kept)
    return Fitted(first.model, None, first.kwargs, first.result, chains=chains)
