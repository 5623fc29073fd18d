"""Estimators with scikit-learn's interface in `compare`, and what they predict as densities."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sklearn
from scipy import stats
from scipy.special import logsumexp
from sklearn.dummy import DummyRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.pipeline import Pipeline

from dgp_ppl._errors import DataError, UnsuitableError, one_line
from dgp_ppl._files import fingerprint
from dgp_ppl.comparison._fit_method import prepared
from dgp_ppl.comparison._setting import Setting
from dgp_ppl.comparison._source import Source

# The estimators that have a name: the class without its end, and arguments.
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "catboost": ("catboost.CatBoost", {"iterations": 3000, "early_stopping_rounds": 100,
                                       "verbose": False, "allow_writing_files": False}),
    "ngboost": ("ngboost.NGB", {"n_estimators": 2000, "early_stopping_rounds": 50,
                                "verbose": False}),
    "hist_gradient_boosting": ("sklearn.ensemble.HistGradientBoosting",
                               {"max_iter": 3000, "early_stopping": True,
                                "n_iter_no_change": 100}),
}  # fmt: skip
OF_ERRORS = "a Gaussian with the variance of its errors on a tenth of the training rows"

_LEVELS = (np.arange(100) + 0.5) / 100  # of quantiles
_LEAST_SD = 1e-6  # of a standardised target
_LEAST_STEP = 1e-2  # between quantiles, some of which are equal where they are training targets


@dataclasses.dataclass(frozen=True, eq=False)
class RivalFit:
    """What a fitted estimator predicts at the held-out rows.

    `found` is a distribution as `scipy.stats` freezes it, of standardised targets with this `loc`
    and `scale`; or the classes' `probabilities`, [N*, C].
    """

    found: Any
    loc: float
    scale: float
    seconds: float
    density: str  # where it is from

    @property
    def mean(self) -> np.ndarray:
        return self.loc + self.scale * self.found.mean()

    @property
    def probabilities(self) -> np.ndarray:
        return self.found

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        return self.found.logpdf((y - self.loc) / self.scale) - np.log(self.scale)

    def interval(self, level: float) -> list[np.ndarray]:
        ends = 0.5 - level / 2, 0.5 + level / 2
        return [self.loc + self.scale * self.found.ppf(q) for q in ends]

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return twice the mean pinball loss of 100 quantiles."""
        levels = _LEVELS[:, None]
        errors = y - self.loc - self.scale * self.found.ppf(levels)
        return 2 * np.maximum(levels * errors, (levels - 1) * errors).mean(axis=0)


@dataclasses.dataclass(frozen=True, eq=False)
class _Quantiles:
    """A Gaussian at each of the quantiles at `_LEVELS`, [Q, N*], as wide as the steps there."""

    values: np.ndarray

    def mean(self) -> np.ndarray:
        return self.values.mean(axis=0)

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        steps = np.maximum(np.gradient(self.values, axis=0), _LEAST_STEP)
        return logsumexp(stats.norm.logpdf(y, self.values, steps), axis=0) - np.log(len(_LEVELS))

    def ppf(self, q: Any) -> np.ndarray:
        found = [np.interp(np.ravel(q), _LEVELS, row) for row in self.values.T]
        return np.squeeze(np.transpose(found)) if np.ndim(q) == 0 else np.transpose(found)


def parted(methods: Sequence[Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of methods, and the estimators among them by their names."""
    names, given = [], {}
    for method in methods:
        is_pair = isinstance(method, tuple) and len(method) == 2
        name, value = method if is_pair else (type(method).__name__, method)
        if isinstance(method, str):
            name = method
        elif (
            isinstance(name, str) and not isinstance(value, type)
            and hasattr(value, "fit") and hasattr(value, "get_params")
        ):  # fmt: skip
            given[name] = value
        else:
            raise DataError(
                f"compare: methods has {one_line(method)}, wanted a name, an estimator with fit, "
                "predict and get_params, or a pair (name, estimator)"
            )
        names.append(name)
    return names, given


def estimators(
    methods: Sequence[str], given: Mapping[str, Any], source: Source, seed: int
) -> dict[str, Any]:
    """Return the estimators among methods by name; raise if one cannot predict the target."""
    kind = "Regressor" if source.task == "regression" else "Classifier"
    found = dict(given)
    for name in {*methods} & {*RIVALS}:
        path, options = RIVALS[name]
        module, _, start = path.rpartition(".")
        options = options | {"random_state": seed}
        try:
            made = getattr(importlib.import_module(module), start + kind)
            if name == "ngboost" and source.task == "multiclass":
                distributions = importlib.import_module("ngboost.distns")
                options["Dist"] = distributions.k_categorical(source.num_classes)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"compare: {name} wanted {error.name}; python -m pip install 'dgp_ppl[rivals]'",
                name=error.name,
            ) from error
        found[name] = made(**options)
    for name, estimator in found.items():
        if hasattr(estimator, "predict_proba") == (source.task == "regression"):
            raise DataError(
                f"compare: methods has {name!r}, and the target of {source.name} is {source.task}; "
                f"wanted a {kind.lower()}{' with predict_proba' * (kind == 'Classifier')}"
            )
    return found


def identity(estimator: Any) -> dict[str, Any]:
    """Return the class and the parameters of an estimator, equal in every process."""

    def text(value: Any) -> str:
        if isinstance(value, np.ndarray):
            return fingerprint(value)["sha256"]
        return re.sub(r" at 0x\w+", "", repr(value))  # of functions

    kind, params = type(estimator), estimator.get_params()
    named = {name: text(value) for name, value in params.items()}
    return {"class": f"{kind.__module__}.{kind.__qualname__}", "params": named}


def rival_versions(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the packages that estimators come from, beside scikit-learn's."""
    packages = {type(e).__module__.split(".")[0] for e in found.values()} - {"sklearn"}
    known = {p: getattr(sys.modules.get(p), "__version__", None) for p in sorted(packages)}
    return {p: version for p, version in known.items() if version is not None}


def fit_rival(
    estimator: Any, x: Any, y: Any, x_test: np.ndarray, setting: Setting, num_classes: int,
    labels: np.ndarray | None = None, **options: Any,
) -> RivalFit:  # fmt: skip
    """Fit an estimator to standardised training rows, with options of `prepared`, and predict.

    Rows with the same of `labels` stay together, in the tenth that is held out or in the others.
    """
    scale, (task, *_) = prepared(x, y, setting, **options)
    x, y, x_test = (np.asarray(a) for a in (task.x, task.y, scale.inputs(x_test)))
    rng = np.random.default_rng((options["seed"], options["split"]))
    try:
        start = time.perf_counter()
        fitted, error = _fitted(estimator, x, y, *_tenth(rng, len(x), labels))
        seconds = time.perf_counter() - start
        found = _predicted(fitted, x_test, error, num_classes)
    except Exception as fault:  # whatever other packages raise
        text = f"{type(estimator).__name__}: {type(fault).__name__}: {one_line(fault)}"
        raise UnsuitableError(text) from fault
    density = "its own" if error is None else OF_ERRORS
    return RivalFit(found, float(scale.y_loc), float(scale.y_scale), seconds, density)


def _tenth(rng: Any, num: int, labels: np.ndarray | None) -> list[np.ndarray]:
    """Return the numbers of a random tenth of rows, and of the others; groups stay together."""
    if labels is None:
        return np.split(rng.permutation(num), [max(1, num // 10)])
    group = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    sizes = np.bincount(group)
    order = rng.permutation(len(sizes))
    held = order[: 1 + np.searchsorted(np.cumsum(sizes[order]), num // 10)]
    if len(held) == len(order):
        raise ValueError("groups leave no training rows beside a tenth, wanted more groups")
    return [np.flatnonzero(np.isin(group, held)), np.flatnonzero(~np.isin(group, held))]


def _fitted(
    estimator: Any, x: Any, y: Any, held: np.ndarray, rest: np.ndarray
) -> tuple[Any, float | None]:
    """Return a fit, and the root mean square of its errors if it needs one for a density.

    What stops early by held-out rows gets a tenth, and keeps its fit of the others. What predicts a
    mean alone is fitted to all rows after its errors on a tenth are known.
    """
    taken, options = inspect.signature(estimator.fit).parameters, {}
    clone: Any = sklearn.clone
    if "eval_set" in taken:  # of CatBoost, LightGBM and XGBoost
        options = {"eval_set": [(x[held], y[held])]}
    elif "Y_val" in taken:  # of NGBoost
        options = {"X_val": x[held], "Y_val": y[held]}
    is_own = hasattr(estimator, "predict_proba") or _kind(estimator) != "mean"
    if is_own and not options:
        return clone(estimator).fit(x, y), None
    fitted = clone(estimator).fit(x[rest], y[rest], **options)
    if is_own:
        return fitted, None
    mean = fitted.predict(x[held])
    if mean.shape != y[held].shape:
        raise ValueError(f"predict gave shape {mean.shape}, wanted {y[held].shape}")
    error = float(np.sqrt(np.mean((mean - y[held]) ** 2)))
    return fitted if options else clone(estimator).fit(x, y), max(error, _LEAST_SD)


def _kind(estimator: Any) -> str:
    """Return what a regressor can predict: pred_dist, return_std, quantiles or mean."""
    if hasattr(estimator, "pred_dist"):
        return "pred_dist"
    last = _last(estimator)
    if isinstance(last, DummyRegressor):  # its sd is 0
        return "mean"
    taken = inspect.signature(last.predict).parameters
    return next((name for name in ("return_std", "quantiles") if name in taken), "mean")


def _last(estimator: Any) -> Any:
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _predicted(fitted: Any, x: np.ndarray, error: float | None, num_classes: int) -> Any:
    best = getattr(fitted, "best_val_loss_itr", None)  # NGBoost predicts by all trees unless told
    options = {} if best is None else {"max_iter": best + 1}
    if num_classes:
        probabilities = np.zeros((len(x), num_classes))  # of no training row: 0
        columns = np.asarray(getattr(fitted, "classes_", range(num_classes)), int)
        probabilities[:, columns] = fitted.predict_proba(x, **options)
        return probabilities
    kind = _kind(fitted)
    if kind == "pred_dist":
        return fitted.pred_dist(x, **options)
    if kind == "quantiles":
        return _Quantiles(np.sort(fitted.predict(x, quantiles=list(_LEVELS)), axis=1).T)
    if kind == "return_std":
        mean, sd = fitted.predict(x, return_std=True)
        if isinstance(last := _last(fitted), GaussianProcessRegressor):  # sd leaves alpha out
            noise: Any = last
            sd = np.sqrt(sd**2 + np.mean(noise.alpha) * noise._y_train_std**2)
        return stats.norm(mean, np.maximum(sd, _LEAST_SD))
    return stats.norm(fitted.predict(x), error)
