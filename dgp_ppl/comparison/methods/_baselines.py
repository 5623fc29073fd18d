"""Baseline methods of `compare`: linear regression, the exact GP and neural networks.

The setting ``model`` has no effect on them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro import handlers
from numpyro.infer import init_to_sample
from numpyro.infer.autoguide import AutoDelta, AutoNormal

from dgp_ppl import kernels, models
from dgp_ppl._errors import UnsuitableError
from dgp_ppl._partition import TRACING
from dgp_ppl._typing import Inputs, Params, PRNGKey
from dgp_ppl.comparison._builders import kernel_maker, observation_arguments
from dgp_ppl.comparison._method import Fitted, Task, register
from dgp_ppl.comparison.methods._sparse import fit_collapsed, fit_exact
from dgp_ppl.inference import evaluate, fit, freeze

__all__: list[str] = []  # the methods are in METHODS

_EXACT_ROWS = 2000  # a step of the exact GP costs N^3
_NETWORK_RATE = 0.1  # learning rate of the networks relative to the setting's
_BNN_UNITS = (50,)
_MEMBERS = 5
_MEMBER_UNITS = (100, 100)


@register("linear", regression_only=True)
def _linear(task: Task) -> Fitted:
    """Fit exact Bayesian linear regression.

    With a linear kernel and inducing inputs at the unit vectors, the inducing values are the
    weights.
    """
    z = np.eye(task.x.shape[1], dtype=task.x.dtype)  # JAX arrays in a model are no equal ones
    model = freeze(models.sgpr, {"l1.z": z})
    return fit_collapsed(task, jnp.asarray(z), _shared_variance, model, z=z)


def _shared_variance(name: str, dim: int) -> Any:
    """Make the linear kernel with one prior variance for all weights."""
    return kernels.Linear.learned(name, dim, ard=False)


@register("gp", regression_only=True)
def _gp(task: Task) -> Fitted:
    """Fit the exact GP, and predict by a sparse GP with inducing inputs at all distinct rows."""
    if len(task.x) > _EXACT_ROWS:
        raise UnsuitableError(
            f"gp: {len(task.x)} training rows, wanted at most {_EXACT_ROWS:,}, as the cost grows "
            "with their cube; use sgpr or dsvi"
        )
    return fit_exact(task, kernel_maker(task))


@register("bnn", streams=True)
def _bnn(task: Task) -> Fitted:
    """Fit a Bayesian neural network with one hidden layer by mean-field SVI."""
    key_fit, key_elbo = random.split(task.key)
    setting = task.setting
    kwargs = {"hidden": _BNN_UNITS, **observation_arguments(setting)}
    guide = AutoNormal(models.bnn, init_loc_fn=init_to_sample, init_scale=0.01)
    result = fit(
        key_fit, models.bnn, guide, *task.data, steps=task.steps, progress=task.progress,
        learning_rate=_NETWORK_RATE * setting.learning_rate, batch_size=setting.batch, **kwargs,
    )  # fmt: skip
    rows: dict[str, Any] = {**kwargs, "batch_size": setting.batch, "num_draws": 100}
    elbo, _ = evaluate(key_elbo, models.bnn, guide, result.params, *task.data, **rows)
    return Fitted(models.bnn, guide, kwargs, result, elbo / task.num_data)


@register("ensemble", streams=True)
def _ensemble(task: Task) -> Fitted:
    """Fit five networks with two hidden layers, each to a mode (Lakshminarayanan et al. 2017)."""
    setting = task.setting
    kwargs = {"hidden": _MEMBER_UNITS, **observation_arguments(setting)}
    guide = AutoDelta(models.bnn, init_loc_fn=init_to_sample)
    results, first = [], task.x.first[0] if task.is_streamed else task.x[:1]
    for key in random.split(task.key, _MEMBERS):
        key_start, key_fit = random.split(key)
        results.append(
            fit(
                key_fit, models.bnn, guide, *task.data, steps=task.steps,
                start=_prior_draw(key_start, first, kwargs), batch_size=setting.batch,
                learning_rate=_NETWORK_RATE * setting.learning_rate, progress=task.progress,
                **kwargs,
            )
        )  # fmt: skip
    modes = [{n.removesuffix("_auto_loc"): a for n, a in r.params.items()} for r in results]
    draws = jax.tree.map(lambda *a: jnp.stack(a), *modes)
    return Fitted(models.bnn, None, kwargs, results[0], draws=draws)


def _prior_draw(key: PRNGKey, x: Inputs, kwargs: dict[str, Any]) -> Params:
    """Return `AutoDelta`'s params with weights drawn from the prior, biases 0 and noise 0.3."""
    with TRACING:
        trace = handlers.trace(handlers.seed(models.bnn, key)).get_trace(x, **kwargs)
    params: Params = {}
    for name, site in trace.items():
        if site["type"] == "sample" and name != "y":
            value = site["value"] if name.startswith("w") else jnp.zeros_like(site["value"])
            params[f"{name}_auto_loc"] = jnp.asarray(0.3) if name == "noise" else value
    return params
