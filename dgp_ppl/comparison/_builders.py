"""The models and likelihoods that `compare` knows by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.contrib.module import eqx_module

from dgp_ppl import initialize, likelihoods, models
from dgp_ppl._checks import check_count
from dgp_ppl._errors import DataError, UnsuitableError
from dgp_ppl._typing import InducingInputs, Inputs, Model, Params
from dgp_ppl.comparison._kernels import KERNELS, kernel_maker
from dgp_ppl.comparison._method import Setting, Task
from dgp_ppl.core import Grid
from dgp_ppl.datasets import Dataset, RowSource

__all__ = [
    "LIKELIHOODS",
    "MODELS",
    "Builder",
    "Built",
    "Features",
    "build",
    "check_categories",
    "check_setting",
    "complete_setting",
    "deep_gp",
    "observation_arguments",
]

_HIDDEN_UNITS = 64  # in each of the two hidden layers of a deep kernel's network
_MAX_FEATURES = 10
_HORIZON = 5.0  # integration time of the flows
_NUM_TIMES = 3  # times of the inducing inputs of a field that changes with time

LIKELIHOODS: dict[str, dict[str, Callable[[Array], dist.Distribution] | None]] = {
    "regression": {
        "gaussian": None,
        "student_t": likelihoods.student_t,
        "heteroscedastic": likelihoods.heteroscedastic,
    },
    "binary": {
        "probit": likelihoods.bernoulli_probit,
        "logit": likelihoods.bernoulli_logit,
    },
    "multiclass": {
        "softmax": likelihoods.softmax,
        "robust_max": likelihoods.robust_max,
    },
}
"""The likelihoods of each task by name; the first is the default. None stands for Gaussian noise
with a learned standard deviation, which is built into the models."""


@dataclasses.dataclass(frozen=True)
class Built:
    """A model and its arguments, initialised with the training inputs of a task.

    Attributes:
        model: the model function.
        kwargs: its keyword arguments.
        inducing: initial inducing inputs of its layers, in the order of their sites.
        start: initial guide params that differ from the guide's defaults.
    """

    model: Model
    kwargs: dict[str, Any]
    inducing: tuple[InducingInputs, ...] = ()
    start: Params = dataclasses.field(default_factory=dict)


class Builder(Protocol):
    """A function that builds a model for the training rows of a `Task`."""

    def __call__(self, task: Task, /) -> Built: ...


def deep_gp(task: Task) -> Built:
    """Build `models.deep_gp` with k-means inducing inputs and PCA mean functions."""
    return _layered(task)


def _skip(task: Task) -> Built:
    """Build `models.deep_gp` with the input fed to every layer."""
    return _layered(task, skip=True)


def _layered(task: Task, skip: bool = False) -> Built:
    setting = task.setting
    layout = initialize.deep_gp(
        task.key, task.x, num_inducing=setting.inducing, depth=setting.depth,
        width=setting.width, skip=skip,
    )  # fmt: skip
    return Built(models.deep_gp, layout | _model_arguments(task, setting.depth), layout["z"])


def _deep_kernel(task: Task) -> Built:
    """Build `models.deep_gp` on the outputs of a neural network, trained jointly."""
    setting = task.setting
    key_net, key_z = random.split(task.key)
    x = initialize.some_rows(key_z, task.x)
    num_inputs = x.shape[1]
    width = min(_MAX_FEATURES, num_inputs) if setting.width is None else setting.width
    net = eqx.nn.MLP(num_inputs, width, _HIDDEN_UNITS, 2, key=key_net)
    features = Features(net)
    with handlers.block():
        layout = initialize.deep_gp(
            key_z, features("features")(x), num_inducing=setting.inducing, depth=setting.depth
        )
    kwargs = layout | {"features": features} | _model_arguments(task, setting.depth)
    return Built(models.deep_gp, kwargs, layout["z"])


class Features(eqx.Module):
    """An equinox module used as a map of a model's inputs; its arrays become model params.

    Attributes:
        module: the equinox module, a map of one row.
    """

    module: Any

    def __call__(self, name: str) -> Callable[[Inputs], Array]:
        """Register the module's params under a name, and return the map of all rows."""
        network: Any = eqx_module(name, self.module)
        return jax.vmap(network)


def _latent(task: Task) -> Built:
    """Build `models.gplvm` with one latent input beside the observed ones.

    The latent input lets the noise take any distribution.
    """
    if task.is_streamed:
        raise UnsuitableError(
            "latent: the model has a latent input for each row, which a source of rows does not "
            "keep; wanted arrays, or another model"
        )
    key_latent, key_z = random.split(task.key)
    is_regression = task.setting.task == "regression"
    target = task.y if is_regression else random.normal(key_latent, jnp.shape(task.y))
    layout, start = initialize.gplvm(
        key_z, target, 1, x=task.x, num_inducing=task.setting.inducing, depth=task.setting.depth
    )
    arguments = _model_arguments(task, task.setting.depth)
    return Built(models.gplvm, layout | arguments, layout["z"], start)


def _diff_gp(task: Task) -> Built:
    """Build `models.diff_gp`; both GPs get the same inducing inputs, and depth has no effect."""
    z = initialize.inducing_inputs(task.key, task.x, task.setting.inducing)
    kwargs = {"z": z, "z_flow": z, "horizon": _HORIZON, "flow_kernel": kernel_maker(task)}
    return Built(models.diff_gp, kwargs | _model_arguments(task), (z, z))


def _temporal_diff_gp(task: Task) -> Built:
    """Build `models.diff_gp` with a field that changes with time."""
    constant = _diff_gp(task)
    z = constant.inducing[0]
    times = jnp.linspace(0.0, _HORIZON, _NUM_TIMES)
    return Built(constant.model, constant.kwargs | {"z_time": times}, (Grid(z, times).points, z))


MODELS: dict[str, Builder] = {
    "deep_gp": deep_gp,
    "skip": _skip,
    "deep_kernel": _deep_kernel,
    "latent": _latent,
    "diff_gp": _diff_gp,
    "temporal_diff_gp": _temporal_diff_gp,
}
"""The builders of the models by name."""

CATEGORY_MODELS = ("deep_gp", "skip")
"""The models whose first layer has the inputs themselves, and so can have `CategoryKernel`."""


def check_setting(caller: str, setting: Setting) -> None:
    """Raise unless the model is known and all numbers of a setting are in range.

    Args:
        caller: name of the function or class that was given the values.
        setting: the settings.

    Raises:
        TypeError: if a count is not an integer.
        ValueError: if the model or the kernel is unknown, or a number is out of range.
    """
    if setting.model not in MODELS:
        raise ValueError(f"{caller}: model is {setting.model!r}, wanted one of {', '.join(MODELS)}")
    if setting.kernel not in KERNELS:
        raise ValueError(
            f"{caller}: kernel is {setting.kernel!r}, wanted one of {', '.join(KERNELS)}"
        )
    if setting.share_kernel is False and setting.model == "temporal_diff_gp":
        raise ValueError(
            f"{caller}: share_kernel is False, but the field of temporal_diff_gp has one kernel "
            "for all outputs; leave it out, or take the model diff_gp"
        )
    for name in ("depth", "inducing", "width", "steps", "starts", "batch", "draws", "chains"):
        value = getattr(setting, name)
        if not (name == "width" and value is None):
            check_count(caller, name, value)
    rate = setting.learning_rate
    if not isinstance(rate, Real) or not 0 < rate < float("inf"):
        raise ValueError(f"{caller}: learning_rate is {rate!r}, wanted a positive number")


def complete_setting(
    caller: str,
    setting: Setting,
    task: str,
    classes: int,
    likelihood: str | None,
    *,
    target: str = "the target",
) -> Setting:
    """Return a setting with a task, its likelihood and the number of outputs.

    >>> from dgp_ppl.comparison import Setting, complete_setting
    >>> found = complete_setting("compare", Setting(), "multiclass", 3, None)
    >>> found.likelihood, found.outputs
    ('softmax', 3)

    Args:
        caller: name of the function or class that was given the values.
        setting: the settings.
        task: "regression", "binary" or "multiclass".
        classes: number of classes of a multiclass target.
        likelihood: name of the likelihood; None for the task's first.
        target: what the error calls the target.

    Raises:
        ValueError: if the task has no such likelihood.
    """
    known = LIKELIHOODS[task]
    name = next(iter(known)) if likelihood is None else likelihood
    if name not in known:
        raise ValueError(
            f"{caller}: likelihood is {name!r}, wanted one for {target} ({task}): "
            f"{', '.join(known)}"
        )
    outputs = classes if task == "multiclass" else 1
    outputs = 2 if name == "heteroscedastic" else outputs
    return dataclasses.replace(setting, task=task, likelihood=name, outputs=outputs)


def check_categories(caller: str, data: Dataset | RowSource, model: str) -> None:
    """Raise unless a model can have kernels over the categories of a data set.

    Raises:
        DataError: if no column has three or more categories.
        ValueError: if the model's first layer does not have the inputs themselves.
    """
    if model not in CATEGORY_MODELS:
        raise ValueError(
            f"{caller}: category_kernel is True and model {model!r}, wanted one of "
            f"{', '.join(CATEGORY_MODELS)}"
        )
    if isinstance(data, RowSource):
        raise DataError(
            f"{data.name}: category_kernel is True, which takes a table that is read whole; leave "
            "it out, or give one .parquet file"
        )
    if data.preprocessor is None or not data.preprocessor.one_hot:
        raise DataError(
            f"{data.name}: category_kernel is True, but no input is a column of three or more "
            "categories; leave it out, or name columns of numbers in categorical"
        )


def build(task: Task) -> Built:
    """Build the model that the settings of a task name.

    Raises:
        ValueError: if the task has one-hot inputs with kernels over categories, and the model's
            first layer does not have these inputs.
    """
    model = task.setting.model
    if task.one_hot and model not in CATEGORY_MODELS:
        raise ValueError(
            f"build: one_hot is given and model is {model!r}, wanted one of "
            f"{', '.join(CATEGORY_MODELS)}"
        )
    return MODELS[task.setting.model](task)


def _model_arguments(task: Task, depth: int | None = None) -> dict[str, Any]:
    """Return the model arguments for the kernels and for the observations.

    Args:
        task: the fit to do.
        depth: number of layers of models that take a kernel for each; None for others.
    """
    setting = task.setting
    makers = [kernel_maker(task), *[KERNELS[setting.kernel].learned] * ((depth or 1) - 1)]
    if setting.likelihood == "heteroscedastic":  # mean and noise have little in common
        makers[-1] = partial(makers[-1], out=setting.outputs)
    kernel = makers[0] if depth is None or len({*makers}) == 1 else tuple(makers)
    arguments = {"kernel": kernel, "share_kernel": setting.share_kernel}
    return arguments | observation_arguments(setting)


def observation_arguments(setting: Setting) -> dict[str, Any]:
    """Return the model arguments for the observations: the outputs and the likelihood."""
    likelihood = LIKELIHOODS[setting.task][setting.likelihood]
    return {} if likelihood is None else {"out": setting.outputs, "likelihood": likelihood}
