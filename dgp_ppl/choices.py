"""What a comparison chooses before any method: the model, and the likelihood of its task."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl import initialize, likelihoods, models
from dgp_ppl._typing import InducingInputs, Inputs, Model, PRNGKey

__all__ = ["LIKELIHOODS", "MODELS", "Built", "Setting", "build", "deep_gp"]

# By task, the default first; None is Gaussian noise whose standard deviation is learned.
LIKELIHOODS: dict[str, dict[str, Callable[[Array], dist.Distribution] | None]] = {
    "regression": {"gaussian": None},
    "binary": {
        "probit": likelihoods.bernoulli_probit,
        "logit": likelihoods.bernoulli_logit,
    },
    "multiclass": {
        "softmax": likelihoods.softmax,
        "robust_max": likelihoods.robust_max,
    },
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all methods of a comparison share.

    Attributes:
        model: name of the model, of `MODELS`.
        depth: GP layers L of the deep methods.
        inducing: inducing inputs M of every layer.
        width: outputs of hidden layers; None for min(30, D).
        steps: optimiser steps.
        batch: rows of a minibatch, for the methods that take one.
        learning_rate: where the cosine schedule starts; see `fit`.
        draws: draws of each chain that samplers keep.
        chains: their chains.
        task: "regression", "binary" or "multiclass".
        likelihood: its name among those of the task.
        outputs: outputs of the last layer: the number of classes if there are several, else 1.
    """

    model: str = "deep_gp"
    depth: int = 2
    inducing: int = 100
    width: int | None = None
    steps: int = 6000
    batch: int = 1000
    learning_rate: float = 0.1
    draws: int = 250
    chains: int = 2
    task: str = "regression"
    likelihood: str = "gaussian"
    outputs: int = 1


@dataclasses.dataclass(frozen=True)
class Built:
    """A model with its arguments for some training inputs.

    Attributes:
        model: the model function.
        kwargs: its keyword arguments.
        inducing: initial inducing inputs of its layers, in the order of their sites.
    """

    model: Model
    kwargs: dict[str, Any]
    inducing: tuple[InducingInputs, ...]


class Builder(Protocol):
    """Makes a model for standardised inputs."""

    def __call__(self, key: PRNGKey, x: Inputs, setting: Setting) -> Built: ...


def deep_gp(key: PRNGKey, x: Inputs, setting: Setting) -> Built:
    """`models.deep_gp` with k-means inducing inputs and PCA mean maps."""
    layout = initialize.deep_gp(
        key, x, num_inducing=setting.inducing, depth=setting.depth, width=setting.width
    )
    return Built(models.deep_gp, layout | _observed(setting), layout["z"])


def _diff_gp(key: PRNGKey, x: Inputs, setting: Setting) -> Built:
    """`models.diff_gp`, both GPs with the same k-means inducing inputs; it has no depth."""
    z = initialize.inducing_inputs(key, x, setting.inducing)
    return Built(models.diff_gp, {"z": z, "z_flow": z} | _observed(setting), (z, z))


MODELS: dict[str, Builder] = {"deep_gp": deep_gp, "diff_gp": _diff_gp}


def build(key: PRNGKey, x: Inputs, setting: Setting) -> Built:
    """The setting's model for standardised inputs x, [N, D]."""
    return MODELS[setting.model](key, x, setting)


def _observed(setting: Setting) -> dict[str, Any]:
    """The last layer's outputs and the likelihood, as arguments of a model."""
    likelihood = LIKELIHOODS[setting.task][setting.likelihood]
    return {} if likelihood is None else {"out": setting.outputs, "likelihood": likelihood}
