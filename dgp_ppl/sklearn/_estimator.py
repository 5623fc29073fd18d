"""What both estimators share: their parameters, checks of arrays, and the fit."""

from __future__ import annotations

import abc
import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dgp_ppl._checks import check_kind
from dgp_ppl._waiting import Waiting
from dgp_ppl.comparison import METHODS
from dgp_ppl.comparison._fit_method import fit_method
from dgp_ppl.comparison._method import methods_for
from dgp_ppl.comparison._setting import OPTIONS, complete_setting, make_setting, with_options
from dgp_ppl.linalg._precision import precision_of
from dgp_ppl.prediction import Prediction, pool
from dgp_ppl.prediction._function import row_function

_FEWEST_ROWS = 64  # in a chunk
_MAX_PASSES = 100_000  # rows times passes in memory at a time
_LARGEST = float(np.finfo(np.float32).max) ** 0.5  # squares of differences stay finite

_DATES = ("date", "time", "duration", "period")  # types of NumPy, pandas, polars and Arrow

# Arrays have no columns of categories.
_OPTIONS = [o for o in OPTIONS if not o.hidden and o.name != "category_kernel"]


class DeepGPEstimator(BaseEstimator):
    """Base of `DeepGPRegressor` and `DeepGPClassifier`, with their parameters and attributes.

    The parameters are the options of `dgp_ppl.comparison.Setting`, such as `model`, `depth`,
    `inducing`, `kernel`, `steps` and `restarts`, with the defaults of `dgp_ppl.compare`, and the
    three below. With ``random_state=s`` the fit equals the fit of ``compare(..., seed=s)`` to its
    first split.

    Args:
        method: name of the method, such as "dsvi", "dspp", "global_inducing" or "nuts"; see
            `dgp_ppl.comparison.METHODS`. Methods that need Gaussian noise ("sgpr", "gp" and
            "linear") are for regression alone.
        random_state: seed, a NumPy `RandomState`, or None for another fit each time.
        verbose: whether to show a progress bar.
        **options: options of `Setting`.

    Attributes:
        fitted_: the `comparison.MethodFit` of all restarts. What follows describes the first.
        model_: the model function.
        guide_: its guide; None for samplers.
        model_kwargs_: the model's keyword arguments.
        params_: fitted params by name.
        result_: the `FitResult`.
        loss_curve_: loss of each step, [steps].
        elbo_per_datum_: bound on the log evidence, in nats per datum; None for samplers. For
            regression the target is standardised.
        standardizer_: the units of the training data.
        n_features_in_: number D of inputs.
        feature_names_in_: their names, if X was a data frame.
    """

    samples: int
    restarts: int

    @with_options(_OPTIONS)
    def __init__(
        self,
        *,
        method: str = "dsvi",
        random_state: Any = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        self.method = method
        self.random_state = random_state
        self.verbose = verbose
        for option in _OPTIONS:
            setattr(self, option.name, options.pop(option.name, option.default))
        if options:
            raise TypeError(
                f"{type(self).__name__}: there is no parameter {', '.join(sorted(options))}, "
                f"wanted some of {', '.join(option.name for option in _OPTIONS)}"
            )

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Args:
            X: inputs, [N, D]: an array, or a data frame of numbers.
            y: the target of each row, [N]: numbers, or classes.

        Returns:
            The estimator.

        Raises:
            NonFiniteLossError: if the loss became NaN or infinite.
            ValueError: if the data or a parameter cannot be used.
        """
        numeric = isinstance(self, RegressorMixin)
        before = dict(vars(self))
        try:
            X, y = self._checked(X, y=y, ensure_min_samples=2, y_numeric=numeric)
            return self._fit(X, *self._targets(y))
        except BaseException:
            self.__dict__ = before  # an earlier fit keeps its classes and columns
            raise

    @abc.abstractmethod
    def _targets(self, y: np.ndarray) -> tuple[np.ndarray, str, int]:
        """Return checked targets as numbers or classes 0 ... C-1, the task, and C."""

    def prediction(self, X: Any) -> Prediction:
        """Return the whole predictive distribution at X: the `dgp_ppl.Prediction` of `compare`.

        It has densities, the CRPS, quantiles, and draws of y and of f. Rows have draws of their own
        of the hidden layers' noise, so its mean differs from ``predict(X)``, where they share
        draws, by the Monte Carlo error of `samples` passes. Classes are numbers 0 ... C-1.

        Args:
            X: inputs, [N, D].

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X cannot be used.
        """
        check_is_fitted(self)
        return self.fitted_.predict(self._checked(X, reset=False), self.samples)

    def _row_values(self, X: Any, levels: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return what `row_function` computes at each row of X, in the units of the data.

        All rows share the draws of the hidden layers' noise, so other rows of X change nothing.
        """
        check_is_fitted(self)
        x, scale = self._checked(X, reset=False), self.fitted_.standardizer
        inputs = scale.inputs(x)  # in float64, before JAX rounds them
        first = self.fitted_.predictions(x[:1], self.samples)
        members = [dataclasses.replace(p, standardizer=None) for p in first]
        at_rows = jax.vmap(row_function(pool(members), levels))
        # Chunks have 2^k rows, so that other numbers of rows rarely compile a program.
        most = 2 ** int(np.log2(max(1, _MAX_PASSES // (self.samples * len(members)))))
        size = min(most, max(_FEWEST_ROWS, 2 ** (len(x) - 1).bit_length()))
        chunks = []
        for start in range(0, len(x), size):
            chunk = inputs[start : start + size]
            with precision_of([m.params for m in members]):
                found = at_rows(jnp.pad(chunk, ((0, size - len(chunk)), (0, 0)), mode="edge"))
            chunks.append({n: np.asarray(a, np.float64)[: len(chunk)] for n, a in found.items()})
        values = {n: np.concatenate([c[n] for c in chunks]) for n in chunks[0]}
        if "probabilities" in values:
            return values
        units = {n: scale.original(a) for n, a in values.items() if n != "var"}
        return units | {"var": values["var"] * scale.y_scale**2}

    def _fit(self, X: np.ndarray, y: np.ndarray, task: str, classes: int) -> Self:
        """Fit to checked arrays; y is a number, or a class 0 ... C-1."""
        caller = type(self).__name__
        known = methods_for(task, tuple(METHODS))
        if not isinstance(self.method, str) or self.method not in known:
            needs_noise = isinstance(self.method, str) and self.method in METHODS
            why = ", which needs Gaussian noise" if needs_noise else ""
            raise ValueError(
                f"{caller}: method is {self.method!r}{why}, wanted one of {', '.join(known)}"
            )
        setting = make_setting(caller, None, {o.name: getattr(self, o.name) for o in _OPTIONS})
        setting = complete_setting(caller, setting, task, classes)
        progress = self.method if self.verbose else False
        with Waiting(tell=not progress):  # without a bar, one line at a terminal
            self.fitted_ = fit_method(
                self.method, X, y, setting, seed=self._seed(), split=0, progress=progress
            )
        if self.fitted_.errors:
            failed = f"{len(self.fitted_.errors)} of {self.restarts} fits failed"
            text = f"{caller}: {failed}: {self.fitted_.errors[0]}"
            warnings.warn(text, stacklevel=3)
        first = self.fitted_.fits[0]
        self.model_, self.guide_, self.model_kwargs_ = first.model, first.guide, first.kwargs
        self.result_ = first.result
        self.params_, self.loss_curve_ = first.result.params, first.result.losses
        self.elbo_per_datum_ = first.elbo_per_datum
        self.standardizer_ = self.fitted_.standardizer
        return self

    def _seed(self) -> int:
        """Return the seed: `random_state` if it is a number, else a number drawn from it."""
        given = self.random_state
        wanted = "a seed, a NumPy RandomState, or None"
        kinds = int | np.integer | np.random.RandomState | None
        check_kind(type(self).__name__, "random_state", given, kinds, wanted)
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            return int(check_random_state(given).randint(2**31))
        if not 0 <= given < 2**32:
            raise ValueError(
                f"{type(self).__name__}: random_state is {given}, wanted at least 0 and below 2^32"
            )
        return int(given)

    def _checked(self, X: Any, **options: Any) -> Any:
        """Return what `validate_data` returns; errors are one line, but for other columns."""
        caller = type(self).__name__
        for name, given in (("X", X), ("y", options.get("y"))):
            if np.ma.is_masked(given):
                raise ValueError(
                    f"{caller}: {name} is masked, and the mask would be lost; leave these rows out"
                )
        try:
            _check_dates("X", X)
            if options.get("y_numeric"):
                _check_dates("y", options["y"])
            found = validate_data(self, X, dtype=np.float64, **options)
        except (TypeError, ValueError) as error:
            text = str(error)
            is_told = any(words in text for words in ("has dates", "unique column names"))
            if not is_told and (columns := _text_columns(X)):
                text = (
                    f"X has text in {', '.join(map(repr, columns))} ({text}), wanted numbers; put "
                    "a OneHotEncoder in front, in a ColumnTransformer and a Pipeline, or make "
                    "inputs of the frame by dgp_ppl.datasets.Preprocessor"
                )
            elif text.startswith("Input X contains NaN"):
                text = (
                    "X has missing values (NaN), wanted numbers; put a SimpleImputer in front, or "
                    "make inputs of the frame by dgp_ppl.datasets.Preprocessor"
                )
            elif "NA is ambiguous" in text:  # pandas' missing value
                text = "y has missing values (NA), wanted one in each row; leave these rows out"
            elif "feature names" in text:
                raise
            raise ValueError(f"{caller}: {' '.join(text.split())}") from error
        inputs = found[0] if isinstance(found, tuple) else found
        if (largest := np.abs(inputs).max()) > _LARGEST:
            raise ValueError(
                f"{caller}: X has values up to {largest:.3g}, wanted at most {_LARGEST:.3g}; put a "
                "StandardScaler in front, or take logarithms"
            )
        return found


def _check_dates(name: str, given: Any) -> None:
    """Raise if an array, or a column of a frame, holds dates, which NumPy takes for integers."""
    names = getattr(given, "column_names", getattr(given, "columns", None))
    columns = {"": given} if names is None else {f" in {n!r}": given[n] for n in names}
    for where, column in columns.items():
        kind = getattr(column, "dtype", getattr(column, "type", np.asarray(column).dtype))
        if str(kind).lower().startswith(_DATES):
            raise ValueError(
                f"{name} has dates{where} ({kind}), wanted numbers; "
                "dgp_ppl.datasets.Preprocessor turns dates into days, and so does subtracting one "
                "of them and dividing by np.timedelta64(1, 'D')"
            )


def _text_columns(X: Any) -> list[Any]:
    """Return the names of a data frame's columns that NumPy cannot convert to numbers."""
    found = []
    for name in getattr(X, "column_names", getattr(X, "columns", ())):
        try:
            np.asarray(X[name]).astype(np.float64)
        except (TypeError, ValueError):
            found.append(name)
    return found
