"""The models and likelihoods that `compare` knows by name."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from dgp_ppl import initialize, models
from dgp_ppl._errors import DataError
from dgp_ppl._typing import InducingInputs, Model
from dgp_ppl.comparison._kernels import KERNELS, CategoryKernel
from dgp_ppl.comparison._method import Task
from dgp_ppl.comparison._setting import LIKELIHOODS, MODELS, Setting
from dgp_ppl.core import Grid
from dgp_ppl.datasets import Dataset
from dgp_ppl.datasets._source import RowSource

_HORIZON = 5.0  # integration time of the flows
_NUM_TIMES = 3  # times of the inducing inputs of a field that changes with time


@dataclasses.dataclass(frozen=True)
class Built:
    """A model and its arguments, initialised with the training inputs of a task.

    Attributes:
        model: the model function.
        kwargs: its keyword arguments.
        inducing: initial inducing inputs of its layers, in the order of their sites.
    """

    model: Model
    kwargs: dict[str, Any]
    inducing: tuple[InducingInputs, ...] = ()


def _deep_gp(task: Task) -> Built:
    """Build `models.deep_gp` with k-means inducing inputs and PCA mean functions."""
    setting = task.setting
    layout = initialize.deep_gp(
        task.key, task.x, num_inducing=num_inducing(task), depth=setting.depth, width=setting.width
    )
    return Built(models.deep_gp, layout | _model_arguments(task, setting.depth), layout["z"])


def _diff_gp(task: Task) -> Built:
    """Build `models.diff_gp`; both GPs get the same inducing inputs, and depth has no effect."""
    z = initialize.inducing_inputs(task.key, task.x, num_inducing(task))
    kwargs = {"z": z, "z_flow": z, "horizon": _HORIZON, "flow_kernel": kernel_maker(task)}
    return Built(models.diff_gp, kwargs | _model_arguments(task), (z, z))


def _temporal_diff_gp(task: Task) -> Built:
    """Build `models.diff_gp` with a field that changes with time."""
    constant = _diff_gp(task)
    z = constant.inducing[0]
    times = jnp.linspace(0.0, _HORIZON, _NUM_TIMES)
    return Built(constant.model, constant.kwargs | {"z_time": times}, (Grid(z, times).points, z))


_BUILDERS = dict(zip(MODELS, (_deep_gp, _diff_gp, _temporal_diff_gp), strict=True))
_MODEL = "deep_gp"  # its first layer has the inputs themselves


def check_categories(caller: str, data: Dataset | RowSource, model: str) -> None:
    """Raise unless a model can have kernels over the categories of a data set."""
    if model != _MODEL:
        raise DataError(f"{caller}: category_kernel is True and model {model!r}, wanted {_MODEL}")
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
    if task.one_hot and model != _MODEL:
        raise ValueError(f"build: one_hot is given and model is {model!r}, wanted {_MODEL}")
    return _BUILDERS[model](task)


def num_inducing(task: Task) -> int:
    """Return the number of inducing inputs, of which more than distinct rows gain nothing."""
    wanted = task.setting.inducing
    if task.is_streamed or task.num_data > 10 * wanted:
        return wanted
    return min(wanted, len(np.unique(np.asarray(task.x), axis=0)))


def with_spare_rows(task: Task, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return so many rows, targets and which count, as `models.exact` takes them, in float64.

    Spare rows lie apart from all others, and make their number one that other fits have too.
    """
    x, y = (np.asarray(a, np.float64) for a in (task.x, task.y))
    low, high = x.min(axis=0), x.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    spare = high + spread * np.arange(1, size - len(x) + 1)[:, None]
    y = np.pad(y, (0, size - len(x)))
    return np.concatenate([x, spare]), y, np.arange(size) < len(x)


def kernel_maker(task: Task) -> models.KernelMaker:
    """Return the function that makes the kernel of the layer of the inputs."""
    kernel = KERNELS[task.setting.kernel]
    return CategoryKernel(kernel, task.one_hot) if task.one_hot else kernel.learned


def _model_arguments(task: Task, depth: int | None = None) -> dict[str, Any]:
    """Return a model's arguments; `depth` is None for models of one kernel for all layers."""
    setting = task.setting
    makers = [kernel_maker(task), *[KERNELS[setting.kernel].learned] * ((depth or 1) - 1)]
    if setting.likelihood == "heteroscedastic":  # mean and noise have little in common
        makers[-1] = partial(makers[-1], out=setting.outputs)
    kernel = makers[0] if depth is None or len({*makers}) == 1 else tuple(makers)
    # None leaves it to the model, which shares the kernel of layers with very many inputs alone.
    arguments = {"kernel": kernel, "share_kernel": True if setting.as_published else None}
    return arguments | observation_arguments(setting)


def observation_arguments(setting: Setting) -> dict[str, Any]:
    """Return the model arguments for the observations: the outputs and the likelihood."""
    known = LIKELIHOODS[setting.task]
    name = next(iter(known)) if setting.likelihood is None else setting.likelihood
    likelihood = known[name]
    return {} if likelihood is None else {"out": setting.outputs, "likelihood": likelihood}
