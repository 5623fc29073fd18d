"""What a comparison chooses before any method: the model, and the likelihood of its task."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array, Shaped
from numpyro import handlers
from numpyro.contrib.module import eqx_module

from dgp_ppl import initialize, likelihoods, models
from dgp_ppl._typing import InducingInputs, Inputs, Model, Params, PRNGKey
from dgp_ppl.core import Grid

__all__ = ["LIKELIHOODS", "MODELS", "Built", "Features", "Setting", "build", "deep_gp", "observed"]

Targets = Shaped[Array, " N"]
_UNITS = 64  # of the two hidden layers of a deep kernel's network
_FEATURES = 10
_HORIZON = 5.0  # of flows, and its inducing times
_TIMES = 3

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
        start: params of a guide to start from.
    """

    model: Model
    kwargs: dict[str, Any]
    inducing: tuple[InducingInputs, ...] = ()
    start: Params = dataclasses.field(default_factory=dict)


class Builder(Protocol):
    """Makes a model for standardised inputs, and targets or classes."""

    def __call__(self, key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built: ...


def deep_gp(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """`models.deep_gp` with k-means inducing inputs and PCA mean maps."""
    return _layered(key, x, setting)


def _skip(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """`models.deep_gp` of which every layer sees the input."""
    return _layered(key, x, setting, skip=True)


def _layered(key: PRNGKey, x: Inputs, setting: Setting, skip: bool = False) -> Built:
    layout = initialize.deep_gp(
        key, x, num_inducing=setting.inducing, depth=setting.depth, width=setting.width, skip=skip
    )
    return Built(models.deep_gp, layout | observed(setting), layout["z"])


def _deep_kernel(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """`models.deep_gp` on the outputs of a network that is trained with it."""
    key_net, key_z = random.split(key)
    width = min(_FEATURES, x.shape[1]) if setting.width is None else setting.width
    net = eqx.nn.MLP(x.shape[1], width, _UNITS, 2, key=key_net)
    features = Features(net)
    with handlers.block():
        layout = initialize.deep_gp(
            key_z, features("features")(x), num_inducing=setting.inducing, depth=setting.depth
        )
    kwargs = layout | {"features": features} | observed(setting)
    return Built(models.deep_gp, kwargs, layout["z"])


class Features(eqx.Module):
    """An equinox module, to be a map of a model's inputs: its arrays are params of the model."""

    module: Any

    def __call__(self, name: str) -> Callable[[Inputs], Array]:
        """The map of rows, registered under a name."""
        network: Any = eqx_module(name, self.module)
        return jax.vmap(network)


def _latent(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """`models.gplvm` with one latent input beside the known ones: noise of any shape."""
    key_latent, key_z = random.split(key)
    classes = setting.task != "regression"
    fill = random.normal(key_latent, jnp.shape(y)) if classes else y
    layout, start = initialize.gplvm(
        key_z, fill, 1, x=x, num_inducing=setting.inducing, depth=setting.depth
    )
    return Built(models.gplvm, layout | observed(setting), layout["z"], start)


def _diff_gp(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """`models.diff_gp`, both GPs with the same k-means inducing inputs; it has no depth."""
    z = initialize.inducing_inputs(key, x, setting.inducing)
    kwargs = {"z": z, "z_flow": z, "horizon": _HORIZON}
    return Built(models.diff_gp, kwargs | observed(setting), (z, z))


def _temporal(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """The same with a field that changes with time, at three times of inducing inputs."""
    still = _diff_gp(key, x, y, setting)
    places = still.inducing[0]
    times = jnp.linspace(0.0, _HORIZON, _TIMES)
    grid = Grid(places, times).points
    return Built(still.model, still.kwargs | {"z_time": times}, (grid, places))


MODELS: dict[str, Builder] = {
    "deep_gp": deep_gp,
    "skip": _skip,
    "deep_kernel": _deep_kernel,
    "latent": _latent,
    "diff_gp": _diff_gp,
    "temporal_diff_gp": _temporal,
}


def build(key: PRNGKey, x: Inputs, y: Targets, setting: Setting) -> Built:
    """The setting's model for standardised inputs x, [N, D], and their targets."""
    return MODELS[setting.model](key, x, y, setting)


def observed(setting: Setting) -> dict[str, Any]:
    """The last layer's outputs and the likelihood, as arguments of a model."""
    likelihood = LIKELIHOODS[setting.task][setting.likelihood]
    return {} if likelihood is None else {"out": setting.outputs, "likelihood": likelihood}
