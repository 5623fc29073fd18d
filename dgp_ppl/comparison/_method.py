"""The contract of a method: it takes a `Task`, fits a model, and returns a `Fitted`."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._errors import DataError, NonFiniteLossError, UnsuitableError
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.comparison._setting import Setting
from dgp_ppl.datasets import Rows
from dgp_ppl.inference import Chains, FitResult, MCEMResult
from dgp_ppl.inference.runs._summary import Summarized, list_arrays, program_name
from dgp_ppl.inference.svi._setup import STEPS
from dgp_ppl.prediction import Prediction, predict


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """One fit to do: the training rows of one split, and the settings.

    Attributes:
        key: random key of the fit.
        x: standardised training inputs, [N, D]; or a source of rows, with the targets.
        y: standardised training targets, or classes 0 ... C-1, [N]; None with a source.
        setting: the settings of the comparison.
        progress: label of the progress bar; False for no bar.
        one_hot: positions of the one-hot inputs of each column of categories that gets a kernel
            over categories in the first layer. They are not standardised.
    """

    key: PRNGKey
    x: Any
    y: Any
    setting: Setting
    progress: str | bool = False
    one_hot: tuple[tuple[int, ...], ...] = ()

    @property
    def data(self) -> tuple[Any, ...]:
        """The model's first arguments: x and y, or a source of both."""
        return (self.x,) if self.is_streamed else (self.x, self.y)

    @property
    def steps(self) -> int:
        """Number of optimiser steps: the setting's, or 6,000."""
        return STEPS if self.setting.steps is None else self.setting.steps

    @property
    def num_data(self) -> int:
        """Number of rows N."""
        return len(self.x)

    @property
    def is_streamed(self) -> bool:
        """Whether the rows come from a source, and need not fit in memory."""
        return isinstance(self.x, Rows)

    def split(self, num: int = 2) -> tuple[Task, ...]:
        """Return copies of the task with independent keys, as `jax.random.split` makes them."""
        return tuple(dataclasses.replace(self, key=key) for key in random.split(self.key, num))

    def with_setting(self, **changes: Any) -> Task:
        """Return the task with some of its settings changed, such as ``depth=1``."""
        return dataclasses.replace(self, setting=dataclasses.replace(self.setting, **changes))


@dataclasses.dataclass(frozen=True, repr=False)
class Fitted(Summarized):
    """A fitted method: all that predictions and the results table need.

    Attributes:
        model: the model to predict with.
        guide: its guide; None for methods without one.
        kwargs: the model's keyword arguments.
        result: result of the fit; predictions use its params.
        elbo_per_datum: lower bound on the log evidence of the standardised target, in nats per
            datum, averaged over many draws at the final params; None for methods without a bound.
        chains: posterior draws of a sampler, used instead of the guide's.
        draws: posterior draws that do not come from chains, such as the members of an ensemble.
    """

    model: Model
    guide: Model | None
    kwargs: dict[str, Any]
    result: FitResult | MCEMResult
    elbo_per_datum: float | None = None
    chains: Chains | None = None
    draws: dict[str, Array] | None = None

    def summary(self) -> list[str]:
        guide = "" if self.guide is None else f" with {program_name(self.guide)}"
        steps, *lines = self.result.summary()
        if self.elbo_per_datum is not None:
            lines.append(f"ELBO per datum {self.elbo_per_datum:.4g}, of many draws")
        if self.chains is not None and not isinstance(self.result, MCEMResult):
            lines.append(f"chains: {self.chains.summary()[0]}")
        if self.draws is not None:
            lines += list_arrays("draws", self.draws)
        return [f"{program_name(self.model)}{guide}, {steps}", *lines]

    def predict(self, key: PRNGKey, x: ArrayLike, **options: Any) -> Prediction:
        """Return the predictive distribution at inputs x, [N*, D].

        Args:
            key: random key.
            x: inputs; in the units of the data if `options` has the ``standardizer``.
            **options: options of `dgp_ppl.predict`.
        """
        options |= {"posterior_samples": self.chains or self.draws, **self.kwargs}
        return predict(key, self.model, self.guide, self.result.params, x, **options)


Method = Callable[[Task], Fitted]

METHODS: dict[str, Method] = {}
"""The registered methods by name."""

FitsInOneProgram = Callable[[Sequence[Task]], list[Fitted | NonFiniteLossError | UnsuitableError]]


class Traits(NamedTuple):
    """What `register` is told of a method."""

    regression_only: bool = False
    streams: bool = False
    in_one_program: FitsInOneProgram | None = None


TRAITS: defaultdict[str, Traits] = defaultdict(Traits)
"""The traits of the registered methods by name."""


def register(
    name: str,
    *,
    regression_only: bool = False,
    streams: bool = False,
    in_one_program: FitsInOneProgram | None = None,
) -> Callable[[Method], Method]:
    """Register a method under a name, so that `compare` can fit it.

    `build` makes the model that the user of `compare` chose. The method chooses how to fit it::

        from dgp_ppl import compare
        from dgp_ppl.comparison import Fitted, Task, build, register
        from dgp_ppl.inference import MeanField, fit

        @register("full_batch")
        def full_batch(task: Task) -> Fitted:
            task_model, task_fit = task.split()
            built = build(task_model)
            guide = MeanField(built.model)
            result = fit(
                task_fit.key, built.model, guide, task.x, task.y,
                steps=task.setting.steps, progress=task.progress, **built.kwargs,
            )
            return Fitted(built.model, guide, built.kwargs, result)

        compare("step", ["dsvi", "full_batch"])

    A method that cannot fit a data set raises `UnsuitableError`. `compare` then writes the message
    into the row of that fit and goes on with the other methods.

    Args:
        name: name of the method in tables and in ``compare(methods=...)``.
        regression_only: whether the method needs Gaussian noise. `compare` refuses it for classes.
        streams: whether the method also fits a source of rows. It then takes the training data from
            ``task.data``, and their number from ``task.num_data``.
        in_one_program: fits several tasks together, as `fit_many` does, and returns the fit or the
            error of each. The tasks differ in their keys and rows; their numbers of rows may
            differ. `compare` uses it for the splits of a data set on a GPU. If it raises
            `UnsuitableError`, `compare` fits one split after another.

    Returns:
        A decorator that returns the method unchanged.
    """

    def add(method: Method) -> Method:
        METHODS[name] = method
        TRAITS[name] = Traits(regression_only, streams, in_one_program)
        return method

    return add


def check_methods(methods: Sequence[str], rivals: Iterable[str], given: Collection[str]) -> None:
    """Raise unless these are different names of methods, of rivals or of `given` estimators."""
    taken = [*METHODS, *rivals]
    known = ", ".join(taken)
    for method in methods:
        if method not in {*taken, *given}:
            raise DataError(f"compare: there is no method {method!r}, wanted one of {known}")
        if method in taken and method in given:
            raise DataError(f"compare: the name {method!r} is taken, wanted another for yours")
    if not methods or len(set(methods)) < len(methods):
        names = ",".join(methods)
        raise DataError(
            f"compare: methods has {names!r}, wanted different names among {known}, and "
            "estimators of one class as pairs (name, estimator)"
        )


def methods_for(task: str, methods: Sequence[str], streams: bool = False) -> tuple[str, ...]:
    """Return the methods that can do a task, and fit a source of rows if it `streams`."""
    is_regression = task == "regression"
    return tuple(
        m
        for m in methods
        if (is_regression or not TRAITS[m].regression_only) and (TRAITS[m].streams or not streams)
    )
