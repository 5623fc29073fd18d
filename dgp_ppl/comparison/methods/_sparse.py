"""Sparse GP regression with the function integrated out, as a method of `compare`."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl import initialize, models
from dgp_ppl._partition import compiled
from dgp_ppl._typing import Inputs, Model
from dgp_ppl.comparison._builders import kernel_maker, num_inducing, with_spare_rows
from dgp_ppl.comparison._kernels import LocalKernel
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.inference import FitResult, MeanField, minimize
from dgp_ppl.inference.programs._rows import padded_size
from dgp_ppl.likelihoods._student_t import LEAST_DF, with_tails
from dgp_ppl.linalg._precision import double
from dgp_ppl.models import KernelMaker
from dgp_ppl.models._local import log_prior

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
    """Fit a model with the params of `models.sgpr`.

    Predictions have these inducing inputs, unless the model learns them.
    """
    x, y, counts = task.x, task.y, None
    if len(x) <= 2 * _SOME_ROWS:
        x, y, counts = with_spare_rows(task, padded_size(len(x)))
        kwargs["counts"] = counts
    result = from_starts(task, model, x, y, kernel=kernel, **kwargs)
    return collapsed(result, inducing, kernel, x, y, counts)


def collapsed(
    result: FitResult, inducing: Any, kernel: KernelMaker, x: Any, y: Any, counts: Any = None,
    **kwargs: Any,
) -> Fitted:  # fmt: skip
    """Return a fit of the params of `models.sgpr`, with the optimal q(v) given rows that count."""
    with jax.enable_x64(True):
        params = double({"l1.z": inducing, **result.params})
        params = _optimal_inducing(params, *double((x, y)), kernel=kernel, counts=counts)
    params = {n: np.asarray(a) for n, a in params.items()}
    elbo = float(result.elbo_per_datum[-1])
    result = dataclasses.replace(result, params=params)
    kwargs |= {"z": inducing, "kernel": kernel}
    return Fitted(models.svgp, MeanField(models.svgp), kwargs, result, elbo)


def fit_exact(task: Task, kernel: KernelMaker) -> Fitted:
    """Fit the exact GP of a kernel, a step of which costs N^3."""
    x, y, counts = with_spare_rows(task, padded_size(task.num_data))
    kwargs = {"depth": 1, "kernel": kernel, "priors": False, "counts": counts}
    is_local = isinstance(kernel, LocalKernel)
    result = from_starts(task, _with_prior if is_local else models.exact, x, y, **kwargs)
    with jax.enable_x64(True):
        K, noise = _covariance(*double((dict(result.params), x)), counts, kernel=kernel)
    # Of rows without noise its param may fall to 0, beside what rounding needs.
    result, options = dataclasses.replace(result, params={**result.params, "noise": noise}), {}
    if is_local:
        options["likelihood"] = with_tails
        result.params["g.df"] = _tails(np.asarray(K), np.asarray(y, float), np.asarray(counts))
    # Repeated rows add nothing, and a singular kernel matrix needs more jitter.
    distinct = np.unique(np.asarray(task.x), axis=0)
    z, *_ = with_spare_rows(
        dataclasses.replace(task, x=distinct, y=np.zeros(len(distinct))), padded_size(len(distinct))
    )
    return collapsed(result, z, kernel, x, y, counts, **options)


def _with_prior(x: Any, y: Any = None, **kwargs: Any) -> None:
    """Add the prior of g's lengthscales, which of few rows may fall to where all is rounding."""
    with handlers.trace() as sites:
        models.exact(x, y, **kwargs)
    numpyro.factor("prior", log_prior({n: s for n, s in sites.items() if n.startswith("g.")}))


@partial(compiled, static_argnames="kernel", compiler_options=_QUICKLY)
def _covariance(
    params: dict[str, Any], x: Array, counts: Array, *, kernel: KernelMaker
) -> tuple[Array, Array]:
    """Return the covariance of the rows of an exact GP, and all of its noise's sd."""
    options: Any = {"depth": 1, "kernel": kernel, "priors": False, "counts": counts}
    with handlers.block(), handlers.trace() as sites, handlers.substitute(data=params):
        models.exact(x, jnp.zeros(len(x), x.dtype), **options)
    normal: Any = sites["y"]["fn"]
    return normal.covariance_matrix, jnp.sqrt(normal.noise_var)


def _tails(K: np.ndarray, y: np.ndarray, counts: np.ndarray) -> float:
    """Return the degrees of freedom of rows given all others.

    Source: Sundararajan & Keerthi (2001), "Predictive approaches for choosing hyperparameters in
    Gaussian processes", eq. 6.
    """
    from scipy import optimize, stats

    inverse = np.linalg.inv(K)
    z = (inverse @ y / np.sqrt(np.diag(inverse)))[counts]

    def loss(log: float) -> float:
        df = LEAST_DF + np.exp(log)
        return -np.sum(stats.t.logpdf(z, df, scale=np.sqrt(1 - 2 / df)))

    found: Any = optimize.minimize_scalar(loss, bounds=(-5, 7), method="bounded")
    return float(LEAST_DF + np.exp(found.x))


def from_starts(task: Task, model: Model, x: Inputs, y: Any, **kwargs: Any) -> FitResult:
    """Minimise the loss of a model of one layer, from two noises and two sets of lengthscales."""
    short = initialize.shorter_lengthscales(model, x, factor=_SHORTER, **kwargs)
    lengths = [{n: np.asarray(a) / f for n, a in short.items()} for f in (_SHORTER, 1)]
    lengths = lengths if short else [{}]
    starts: list[Any] = [{"noise": noise, **length} for noise in _NOISE for length in lengths]
    options: dict[str, Any] = {"steps": task.steps, "progress": task.progress, **kwargs}
    if len(x) > 2 * _SOME_ROWS:
        rows = random.choice(task.key, len(x), (_SOME_ROWS,), replace=False)
        starts = [minimize(task.key, model, None, x[rows], y[rows], start=starts, **options)]
    return minimize(task.key, model, None, x, y, start=starts, **options)
