"""GP regression with the function integrated out, exact or sparse, as methods of `compare`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl import initialize, models
from dgp_ppl._partition import compiled
from dgp_ppl._typing import Inputs, Model
from dgp_ppl.comparison._builders import kernel_maker, num_inducing
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.inference import MeanField, minimize
from dgp_ppl.kernels._base import evaluated
from dgp_ppl.linalg import default_jitter
from dgp_ppl.linalg._precision import double
from dgp_ppl.models import KernelMaker
from dgp_ppl.models._exact import DenseNormal

__all__ = ["exact", "fit_collapsed"]

# What fits start from.
_NOISE = (0.3, 0.01)  # of standardised targets
_SHORTER = 0.25  # than the initial lengthscales
_SOME_ROWS = 2000  # of many, on which the best start is found, and its minimum

# It runs once. Optimised code takes twice as long to compile, and no shorter to run.
_QUICKLY: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_optimal_inducing = compiled(
    models.optimal_inducing, static_argnames="kernel", compiler_options=_QUICKLY
)


@register("sgpr", regression_only=True)
def _sgpr(task: Task) -> Fitted:
    """Fit sparse GP regression with all rows at every step (Titsias 2009)."""
    task_z, task_fit = task.split()
    z = initialize.inducing_inputs(task_z.key, task.x, num_inducing(task))
    kernel = kernel_maker(task)
    return fit_collapsed(task_fit, z, kernel, models.sgpr, z=z)


def fit_collapsed(
    task: Task, inducing: Array, kernel: KernelMaker, model: Model, **kwargs: Any
) -> Fitted:
    """Fit a model with the params of `models.sgpr`, from two levels of noise and of lengthscales.

    Predictions have these inducing inputs, unless the model learns them.
    """
    x, y, kwargs = task.x, task.y, {"kernel": kernel, **kwargs}
    short = initialize.shorter_lengthscales(model, x, factor=_SHORTER, **kwargs)
    lengths = [{n: np.asarray(a) / f for n, a in short.items()} for f in (_SHORTER, 1)]
    lengths = lengths if short else [{}]
    starts: list[Any] = [{"noise": noise, **length} for noise in _NOISE for length in lengths]
    options: dict[str, Any] = {"steps": task.steps, "progress": task.progress, **kwargs}
    if len(x) > 2 * _SOME_ROWS:
        rows = random.choice(task.key, len(x), (_SOME_ROWS,), replace=False)
        starts = [minimize(task.key, model, None, x[rows], y[rows], start=starts, **options)]
    result = minimize(task.key, model, None, x, y, start=starts, **options)
    with jax.enable_x64(True):
        params = double({"l1.z": inducing, **result.params})
        params = _optimal_inducing(params, *double((x, y)), kernel=kernel)
    params = {n: np.asarray(a) for n, a in params.items()}
    elbo = float(result.elbo_per_datum[-1])
    result = dataclasses.replace(result, params=params)
    kwargs = {"z": inducing, "kernel": kernel}
    return Fitted(models.svgp, MeanField(models.svgp), kwargs, result, elbo)


def exact(x: Inputs, y: Array | None = None, *, kernel: KernelMaker) -> None:
    """GP regression with the covariance of all rows, and the params of `models.sgpr` but z."""
    K = evaluated(kernel("l1", x.shape[-1]), x, x)
    noise: Any = numpyro.param("noise", 0.3, constraint=constraints.positive)
    noise_var = jnp.square(noise) + default_jitter(K.dtype) * jnp.mean(jnp.diagonal(K))
    K = K + noise_var * jnp.eye(len(x), dtype=K.dtype)
    # NumPyro's checks compile twenty small programs.
    numpyro.sample("y", DenseNormal(jnp.zeros(len(x)), K, validate_args=False), obs=y)
