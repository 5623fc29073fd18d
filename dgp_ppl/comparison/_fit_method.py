"""One method fitted to training rows, in the units of the data."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import random
from jax.typing import ArrayLike

from dgp_ppl._errors import NonFiniteLossError, UnsuitableError
from dgp_ppl.comparison._method import METHODS, Fitted, Task
from dgp_ppl.comparison._setting import Setting
from dgp_ppl.datasets import Rows
from dgp_ppl.inference.runs._summary import Summarized
from dgp_ppl.prediction import Prediction, pool
from dgp_ppl.standardize import Standardizer

FailedFit = (NonFiniteLossError, UnsuitableError)
"""What a fit raises that `compare` writes into its row."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MethodFit(Summarized):
    """A method fitted to training rows: all that predictions in the units of the data need.

    Attributes:
        fits: the fits that succeeded, one for each restart.
        standardizer: the scale of the training rows.
        seed: seed of the fits and of the predictions.
        split: number of the split.
        errors: messages of the restarts that failed.
        seconds: time of all fits.
    """

    fits: tuple[Fitted, ...]
    standardizer: Standardizer
    seed: int
    split: int = 0
    errors: tuple[str, ...] = ()
    seconds: float = 0.0

    def summary(self) -> list[str]:
        many = "" if len(self.fits) == 1 else "s, of which the first is below"
        failed = f", {len(self.errors)} failed: {self.errors[0]}" if self.errors else ""
        first = f"{len(self.fits)} fit{many}, with seed {self.seed} in {self.seconds:.3g} s{failed}"
        return [first, *repr(self.fits[0]).splitlines()]

    def predictions(self, x: ArrayLike, num_samples: int = 100) -> list[Prediction]:
        """Return the predictive distribution of each fit at inputs x, [N*, D], in their units."""
        key = keys_of_split(self.seed, self.split)[2]
        return [
            fitted.predict(
                random.fold_in(key, i) if i else key, x, num_samples=num_samples,
                standardizer=self.standardizer,
            )
            for i, fitted in enumerate(self.fits)
        ]  # fmt: skip

    def predict(self, x: ArrayLike, num_samples: int = 100) -> Prediction:
        """Return the predictive distribution at inputs x, [N*, D]; several fits are mixed.

        Args:
            x: inputs in the units of the data.
            num_samples: number of passes of each fit.
        """
        found = self.predictions(x, num_samples)
        return pool(found) if len(found) > 1 else found[0]


Found = MethodFit | NonFiniteLossError | UnsuitableError
"""The fit of a method, or why it failed."""


def fit_method(method: str, x: Any, y: Any, setting: Setting, **options: Any) -> MethodFit:
    """Fit one method of `compare` to training rows, with options of `prepared`."""
    standardizer, tasks = prepared(x, y, setting, **options)
    start = time.perf_counter()
    found: list[Any] = []
    for task in tasks:
        try:
            found.append(METHODS[method](task))
        except FailedFit as error:
            found.append(error)
    seconds = time.perf_counter() - start
    return method_fit(found, standardizer, options["seed"], options["split"], seconds)


def method_fit(
    found: Sequence[Fitted | NonFiniteLossError | UnsuitableError], standardizer: Standardizer,
    seed: int, split: int, seconds: float,
) -> MethodFit:  # fmt: skip
    """Return the fits of all restarts; if all of them failed, raise the first error."""
    fits = tuple(f for f in found if isinstance(f, Fitted))
    errors = [f for f in found if not isinstance(f, Fitted)]
    if not fits:
        raise errors[0]
    return MethodFit(fits, standardizer, seed, split, tuple(map(str, errors)), seconds)


def prepared(
    x: Any, y: Any, setting: Setting, *, seed: int, split: int, shared_unit: bool = False,
    one_hot: Sequence[Sequence[int]] = (), progress: str | bool = False,
) -> tuple[Standardizer, list[Task]]:  # fmt: skip
    """Return the scale of the training rows, and a task for each restart.

    x, [N, D], and y, [N], are in their units, or y is classes 0 ... C-1; or x is a source of rows
    with the targets, and y None. `one_hot` has the positions of the inputs of each column of
    categories that gets a kernel over categories.
    """
    is_streamed, is_regression = isinstance(x, Rows), setting.task == "regression"
    standardizer = Standardizer.fit(
        x, y if is_regression and not is_streamed else None, shared=shared_unit,
        unscaled=[i for columns in one_hot for i in columns], targets=is_regression,
    )  # fmt: skip
    if is_streamed:
        x, y = standardizer.rows(x), None
    else:
        x, y = standardizer.inputs(x), standardizer.outputs(y) if is_regression else jnp.asarray(y)
    key, categories = keys_of_split(seed, split)[0], tuple(map(tuple, one_hot))
    keys = [key, *(random.fold_in(key, i) for i in range(1, setting.restarts))]
    return standardizer, [Task(k, x, y, setting, progress, categories) for k in keys]


def keys_of_split(seed: int, split: int) -> Any:
    """Return the keys of a split: of the fit, of the rows that a run keeps, of the prediction."""
    return random.split(random.fold_in(random.key(seed), split), 3)
