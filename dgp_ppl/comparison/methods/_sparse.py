"""Sparse GP regression with the inducing values integrated out, as methods of `compare`."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import random
from jaxtyping import Array

from dgp_ppl import initialize, models
from dgp_ppl.comparison._builders import kernel_maker
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.inference import MeanField, evaluate, fit, freeze
from dgp_ppl.models import KernelMaker

__all__ = ["fit_collapsed"]


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
    """Fit `models.sgpr`, which integrates the inducing values out; z may be `fixed`."""
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


def _empty_guide(*args: Any, **kwargs: Any) -> None:
    """Guide a model without latent sites."""
