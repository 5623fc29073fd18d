"""The registry of `compare`: how each named method is fitted to a standardised training set."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from jax import random
from jaxtyping import Array, Float

from dgp_ppl import initialize, models
from dgp_ppl._typing import Inputs, Model, PRNGKey
from dgp_ppl.inference.fit import FitResult, evaluate, fit
from dgp_ppl.inference.mean_field import MeanField

__all__ = ["METHODS", "Fitted", "Method", "Setting", "register"]


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all methods of a comparison share.

    Attributes:
        depth: GP layers L of the deep methods.
        inducing: inducing inputs M of every layer.
        width: outputs of hidden layers; None for min(30, D).
        steps: optimiser steps.
        batch: rows of a minibatch, for the methods that take one.
        learning_rate: where the cosine schedule starts; see `fit`.
    """

    depth: int = 2
    inducing: int = 100
    width: int | None = None
    steps: int = 6000
    batch: int = 1000
    learning_rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted method: what `predict` takes, and what the table reports.

    Attributes:
        model: the model to predict with.
        guide: its guide, or None.
        kwargs: the model's keyword arguments.
        result: the fit; its params are those to predict with.
        elbo_per_datum: the bound on the log evidence of the standardised target, in nats per
            datum, averaged over many draws at the final params.
    """

    model: Model
    guide: Model | None
    kwargs: dict[str, Any]
    result: FitResult
    elbo_per_datum: float


class Method(Protocol):
    """Fits to standardised inputs and target."""

    def __call__(
        self, key: PRNGKey, x: Inputs, y: Float[Array, " N"], setting: Setting, label: str | bool
    ) -> Fitted: ...


METHODS: dict[str, Method] = {}
_EVALUATED_ROWS = 10_000


def register(name: str) -> Callable[[Method], Method]:
    """Make a method known to `compare` under a name."""

    def add(method: Method) -> Method:
        METHODS[name] = method
        return method

    return add


@register("sgpr")
def _sgpr(
    key: PRNGKey, x: Inputs, y: Float[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Sparse GP regression, Titsias (2009): all rows at every step."""
    key_z, key_fit, key_elbo = random.split(key, 3)
    z = initialize.inducing_inputs(key_z, x, setting.inducing)
    options: dict[str, Any] = {"steps": setting.steps, "learning_rate": setting.learning_rate}
    result = fit(key_fit, models.sgpr, _no_latents, x, y, z=z, progress=label, **options)
    elbo, _ = evaluate(key_elbo, models.sgpr, _no_latents, result.params, x, y, z=z, num_draws=2)
    best = dataclasses.replace(result, params=models.optimal_inducing(result.params, x, y))
    return Fitted(models.svgp, MeanField(models.svgp), {"z": z}, best, elbo / len(y))


@register("svgp")
def _svgp(
    key: PRNGKey, x: Inputs, y: Float[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Sparse variational GP in minibatches, Hensman et al. (2013)."""
    return _doubly_stochastic(key, x, y, dataclasses.replace(setting, depth=1), label)


@register("dsvi")
def _doubly_stochastic(
    key: PRNGKey, x: Inputs, y: Float[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP by doubly stochastic variational inference, Salimbeni & Deisenroth (2017)."""
    key_z, key_fit, key_elbo = random.split(key, 3)
    kwargs = initialize.deep_gp(
        key_z, x, num_inducing=setting.inducing, depth=setting.depth, width=setting.width
    )
    model, guide = models.deep_gp, MeanField(models.deep_gp)
    result = fit(
        key_fit,
        model,
        guide,
        x,
        y,
        batch_size=setting.batch,
        steps=setting.steps,
        learning_rate=setting.learning_rate,
        progress=label,
        **kwargs,
    )
    rows: dict[str, Any] = {**kwargs, "batch_size": _EVALUATED_ROWS}
    elbo, _ = evaluate(key_elbo, model, guide, result.params, x, y, **rows)
    return Fitted(model, guide, kwargs, result, elbo / len(y))


def _no_latents(*args: Any, **kwargs: Any) -> None:
    """The guide of a model without latent sites."""
