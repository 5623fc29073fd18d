"""The options of a comparison: names, types, defaults, help texts and checks, each stated once."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, get_type_hints

import numpyro.distributions as dist
from jaxtyping import Array

from dgp_ppl import likelihoods
from dgp_ppl._checks import check_count, check_kind
from dgp_ppl._errors import DataError
from dgp_ppl.comparison._kernels import KERNELS

MODELS: tuple[str, ...] = ("deep_gp", "diff_gp", "temporal_diff_gp")
"""The names of the models."""

LIKELIHOODS: dict[str, dict[str, Callable[[Array], dist.Distribution] | None]] = {
    "regression": {
        "gaussian": None,
        "student_t": likelihoods.student_t,
        "heteroscedastic": likelihoods.heteroscedastic,
    },
    "binary": {"probit": likelihoods.bernoulli_probit, "logit": likelihoods.bernoulli_logit},
    "multiclass": {"softmax": likelihoods.softmax, "robust_max": likelihoods.robust_max},
}
"""The likelihoods of each task by name; the first is the default. None stands for Gaussian noise
with a learned standard deviation, which is built into the models."""

MODEL, FIT, RESULTS = "Methods and model", "Fit", "Results"  # headings of the command's help


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a comparison, as a field of `Setting` declares it."""

    default: Any
    help: str
    group: str  # heading in the command's help
    choices: tuple[str, ...] = ()  # empty for numbers and switches
    default_text: str | None = None  # what the help shows as default, if not `default`
    hidden: bool = False  # whether help texts and the estimators leave it out
    wanted: str = ""  # of a real number that `fits`
    fits: Callable[[float], bool] = bool
    name: str = ""
    type: Any = None  # such as int, or str | None

    def check(self, caller: str, value: Any) -> None:
        """Raise a TypeError or ValueError unless a value is of the type and in range."""
        if value is None and self.default is None:
            return
        if self.choices:
            fits, wanted = value in self.choices, f"one of {', '.join(self.choices)}"
        elif self.type is bool:
            fits, wanted = isinstance(value, bool), "True or False"
        elif self.type is float:
            fits, wanted = isinstance(value, Real) and self.fits(float(value)), self.wanted
        else:
            check_count(caller, self.name, value)
            return
        if not fits:
            error = TypeError if self.type is bool else DataError
            raise error(f"{caller}: {self.name} is {value!r}, wanted {wanted}")


def _option(*args: Any, **kwargs: Any) -> Any:
    option = Option(*args, **kwargs)
    return dataclasses.field(default=option.default, metadata={"option": option})


@dataclasses.dataclass(frozen=True)
class Setting:
    """The options that all methods of a comparison share.

    `compare` takes a setting, or the same names as keywords. The command's options and the
    parameters of the scikit-learn estimators are these, too.

    >>> from dgp_ppl.comparison import Setting
    >>> Setting(depth=3, steps=1000).inducing
    100
    """

    model: str = _option(
        "deep_gp",
        "Model of the deep methods. sgpr and the baselines have their own models.",
        MODEL,
        choices=MODELS,
    )
    likelihood: str | None = _option(
        None,
        "Distribution of the target given f. student_t is for targets with outliers; the noise of "
        "heteroscedastic is a second output of the last layer. sgpr, gp and linear have Gaussian "
        "noise in any case.",
        MODEL,
        choices=tuple(name for known in LIKELIHOODS.values() for name in known),
        default_text="gaussian, probit or softmax",
    )
    depth: int = _option(
        2, "GP layers of the deep methods; 1 is a sparse variational GP (SVGP).", MODEL
    )
    inducing: int = _option(100, "Inducing inputs of each layer.", MODEL)
    width: int | None = _option(
        None, "Outputs of each hidden layer.", MODEL, default_text="min(30, number of inputs)"
    )
    kernel: str = _option(
        "squared_exponential", "Kernel of every layer.", MODEL, choices=tuple(KERNELS)
    )
    category_kernel: bool = _option(
        False,
        "Learn the covariance of the categories of each column of three or more, instead of a "
        "lengthscale for each one-hot input. For the model deep_gp.",
        MODEL,
    )
    as_published: bool = _option(
        False,
        "Fit as the papers do: one kernel for all outputs of a hidden layer, and one start. It is "
        "there to reproduce earlier results, and predicts worse.",
        MODEL,
        hidden=True,
    )
    steps: int | None = _option(
        None,
        "Optimiser steps.",
        FIT,
        default_text="3000 at most for dsvi, 6000 for small minibatches and other methods",
    )
    batch: int = _option(
        1000, "Rows of a minibatch. Methods without minibatches (sgpr) use all rows.", FIT
    )
    learning_rate: float = _option(
        0.1,
        "Initial learning rate of Adam; it decays by a cosine.",
        FIT,
        wanted="a positive number",
        fits=lambda rate: 0 < rate < math.inf,
    )
    elbo_share: float = _option(
        0.5,
        "Share of the ELBO in the objective of dspp; the rest is the log predictive density. With "
        "0 the density is all that is fitted.",
        FIT,
        wanted="a number from 0 to 1",
        fits=lambda share: 0 <= share <= 1,
    )
    restarts: int = _option(1, "Fits of each method by different keys; predictions are mixed.", FIT)
    draws: int = _option(250, "Draws kept from each chain, for sghmc, nuts and bayes.", FIT)
    chains: int = _option(2, "Chains, for sghmc, nuts and bayes; R-hat needs at least two.", FIT)
    samples: int = _option(100, "Draws through the layers for each prediction.", RESULTS)

    # What the data say; see `complete_setting`.
    task: str = "regression"
    outputs: int = 1

    def check(self, caller: str = "Setting") -> None:
        """Raise unless all values are of their types and in range.

        Args:
            caller: name of the function or class that was given the values.

        Raises:
            TypeError: if a count is not an integer, or a switch is not a boolean.
            ValueError: if a name is unknown, or a number is out of range.
        """
        for option in OPTIONS:
            option.check(caller, getattr(self, option.name))


_TYPES = get_type_hints(Setting)
OPTIONS: tuple[Option, ...] = tuple(
    dataclasses.replace(f.metadata["option"], name=f.name, type=_TYPES[f.name])
    for f in dataclasses.fields(Setting)
    if f.metadata
)
"""The options that `Setting` declares, in their order."""

# The attributes of the docstring are the help texts, so that none is written twice.
Setting.__doc__ = "\n".join(
    [
        f"{inspect.cleandoc(Setting.__doc__ or '')}\n\nAttributes:",
        *(f"    {option.name}: {option.help}" for option in OPTIONS),
    ]
)


def make_setting(caller: str, setting: Setting | None, options: Mapping[str, Any]) -> Setting:
    """Return a checked setting with these options; None stands for the defaults."""
    wanted = "a dgp_ppl.comparison.Setting; give its options as keywords, such as depth=2"
    check_kind(caller, "setting", setting, Setting | None, wanted)
    known = [option.name for option in OPTIONS]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"wanted one of {', '.join(known)}"
            raise TypeError(f"{caller}: there is no option {name!r}; {hint}")
    setting = dataclasses.replace(Setting() if setting is None else setting, **options)
    setting.check(caller)
    return setting


def with_options(
    options: Iterable[Option], annotation: Callable[[Option], Any] = operator.attrgetter("type")
) -> Callable[[Any], Any]:
    """Show options in the signature of a function that takes ``**options``."""

    def decorate(function: Any) -> Any:
        signature = inspect.signature(function, eval_str=True)
        *own, _ = signature.parameters.values()
        added = [
            inspect.Parameter(
                o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=annotation(o)
            )
            for o in options
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])
        function.__annotations__ |= {p.name: p.annotation for p in added}  # typer reads these
        return function

    return decorate


def complete_setting(
    caller: str, setting: Setting, task: str, classes: int = 1, *, target: str = "the target"
) -> Setting:
    """Return a setting with a task, its likelihood and the number of outputs."""
    known = LIKELIHOODS[task]
    name = next(iter(known)) if setting.likelihood is None else setting.likelihood
    if name not in known:
        raise DataError(
            f"{caller}: likelihood is {name!r}, wanted one for {target} ({task}): "
            f"{', '.join(known)}"
        )
    outputs = classes if task == "multiclass" else 1
    outputs = 2 if name == "heteroscedastic" else outputs
    return dataclasses.replace(setting, task=task, likelihood=name, outputs=outputs)
