"""Methods of `compare` that deep GPs are compared with. They know nothing of `--model`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Shaped
from numpyro import handlers
from numpyro.infer import NUTS, init_to_sample, init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoNormal

from dgp_ppl import kernels, models
from dgp_ppl._errors import UnsuitableError
from dgp_ppl._typing import Inputs, Params, PRNGKey
from dgp_ppl.comparison._methods import NUTS_FIELDS, Fitted, collapsed, register
from dgp_ppl.comparison._settings import Setting, observed
from dgp_ppl.inference import evaluate, fit, run_mcmc

_EXACT_ROWS = 2000  # a step of the exact GP is cubic in them
_EXACT_STEPS = 500  # of its handful of hyperparameters
_RATE = 0.1  # of the learning rate, for networks
_UNITS = (50,)
_MEMBERS = 5
_MEMBERS_UNITS = (100, 100)


@register("linear", regression_only=True)
def _linear(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Bayesian linear regression, exact: inducing values at the unit vectors are the weights."""
    z = jnp.eye(x.shape[1])
    return collapsed(key, x, y, setting, label, z, kernel=_one_scale, fixed=True)


def _one_scale(name: str, dim: int) -> Any:
    """The linear kernel with one prior variance for all weights."""
    return kernels.Linear.learned(name, dim, ard=False)


@register("gp", regression_only=True)
def _gp(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """The exact GP: inducing inputs at all rows."""
    if len(x) > _EXACT_ROWS:
        raise UnsuitableError(
            f"gp: {len(x)} training rows, wanted at most {_EXACT_ROWS:,}, to which its cost is "
            "cubic; take sgpr or svgp"
        )
    short = dataclasses.replace(setting, steps=min(setting.steps, _EXACT_STEPS))
    return collapsed(key, x, y, short, label, x, fixed=True)


@register("bnn")
def _bnn(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """A Bayesian neural network of one hidden layer, by mean-field SVI."""
    key_fit, key_elbo = random.split(key)
    kwargs = {"hidden": _UNITS, **observed(setting)}
    guide = AutoNormal(models.bnn, init_loc_fn=init_to_sample, init_scale=0.01)
    result = fit(
        key_fit, models.bnn, guide, x, y, steps=setting.steps, progress=label,
        learning_rate=_RATE * setting.learning_rate, batch_size=setting.batch, **kwargs,
    )  # fmt: skip
    rows: dict[str, Any] = {**kwargs, "batch_size": setting.batch, "num_draws": 100}
    elbo, _ = evaluate(key_elbo, models.bnn, guide, result.params, x, y, **rows)
    return Fitted(models.bnn, guide, kwargs, result, elbo / len(y))


@register("bnn_nuts")
def _bnn_nuts(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """The same network by NUTS, on all rows; every chain starts at one mode."""
    key_fit, key_run = random.split(key)
    kwargs = {"hidden": _UNITS, **observed(setting)}
    first = _members(key_fit, x, y, setting, label, 1, kwargs)
    assert first.draws is not None
    mode = {n: a[0] for n, a in first.draws.items()}
    program = NUTS(models.bnn, init_strategy=init_to_value(values=mode))
    chains = run_mcmc(
        key_run, program, x, y, num_warmup=setting.draws, num_samples=setting.draws,
        num_chains=setting.chains, extra_fields=NUTS_FIELDS, progress=label, **kwargs,
    )  # fmt: skip
    return Fitted(models.bnn, None, kwargs, first.result, chains=chains)


@register("ensemble")
def _ensemble(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Five networks of two hidden layers, each at a mode (Lakshminarayanan et al. 2017)."""
    kwargs = {"hidden": _MEMBERS_UNITS, **observed(setting)}
    return _members(key, x, y, setting, label, _MEMBERS, kwargs)


def _members(
    key: PRNGKey,
    x: Inputs,
    y: Shaped[Array, " N"],
    setting: Setting,
    label: str | bool,
    num: int,
    kwargs: dict[str, Any],
) -> Fitted:
    """Modes of the posterior that are reached from draws of the prior."""
    guide = AutoDelta(models.bnn, init_loc_fn=init_to_sample)
    results = []
    for own in random.split(key, num):
        key_start, key_fit = random.split(own)
        results.append(
            fit(
                key_fit, models.bnn, guide, x, y, steps=setting.steps, progress=label,
                start=_prior_draw(key_start, x, kwargs), batch_size=setting.batch,
                learning_rate=_RATE * setting.learning_rate, **kwargs,
            )
        )  # fmt: skip
    modes = [{n.removesuffix("_auto_loc"): a for n, a in r.params.items()} for r in results]
    draws = jax.tree.map(lambda *a: jnp.stack(a), *modes)
    return Fitted(models.bnn, None, kwargs, results[0], draws=draws)


def _prior_draw(key: PRNGKey, x: Inputs, kwargs: dict[str, Any]) -> Params:
    """Params of `AutoDelta` at a draw of the prior; biases and noise at its centre."""
    trace = handlers.trace(handlers.seed(models.bnn, key)).get_trace(x[:1], **kwargs)
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and n != "y"}
    centre: dict[str, Any] = {n: jnp.zeros_like(s["value"]) for n, s in sites.items()}
    centre["noise"] = jnp.asarray(0.3)
    return {
        f"{n}_auto_loc": s["value"] if n.startswith("w") else centre[n] for n, s in sites.items()
    }
