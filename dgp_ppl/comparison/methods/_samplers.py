"""Deep GPs by Markov chains, as methods of `compare`."""

from __future__ import annotations

import dataclasses

from numpyro.infer import NUTS, init_to_sample

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

_NUTS_FIELDS = ("potential_energy", "accept_prob", "num_steps")
_MODEL_RATE = 0.3  # learning rate of the model's params relative to the setting's, as in `fit`
_THINNING = 20  # sampler steps between draws
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


def _sampled(first: Fitted, chains: Chains) -> Fitted:
    """Return draws at the params of a fit in whose reference space the chains moved."""
    # Hidden unit noise belongs to the training rows, reference values to the sampler.
    kept = {n: a for n, a in chains.samples.items() if not n.endswith((".reference", ".eps"))}
    chains = dataclasses.replace(chains, samples=kept)
    return Fitted(first.model, None, first.kwargs, first.result, chains=chains)
