"""`SkproRegressor`: `DeepGPRegressor` with skpro's interface."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

from functools import partialmethod
from typing import Any, ClassVar, Self

import jax
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import check_random_state
from skpro.distributions.base import BaseDistribution
from skpro.regression.base import BaseProbaRegressor

from dgp_ppl._checks import check_kind
from dgp_ppl.prediction import Prediction
from dgp_ppl.sklearn._regressor import DeepGPRegressor


class SkproRegressor(BaseProbaRegressor):
    """A `DeepGPRegressor` as a regressor of skpro, for its metrics, pipelines and searches.

    Its distributions are those of the estimator's `prediction`, for any likelihood::

        gp = SkproRegressor(DeepGPRegressor(depth=1)).fit(X, y)
        CRPS()(y_test, gp.predict_proba(X_test))

    Args:
        estimator: a `DeepGPRegressor`; `fit` clones it, and raises a TypeError for anything else.
    """

    _tags: ClassVar = {"capability:missing": False}

    def __init__(self, estimator: DeepGPRegressor) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> Self:
        kind, wanted = DeepGPRegressor, "a DeepGPRegressor"
        check_kind("SkproRegressor", "estimator", self.estimator, kind, wanted)
        self.estimator_ = clone(self.estimator).fit(X.rename(columns=str), y.squeeze(axis=1))
        return self

    def _predict_proba(self, X: pd.DataFrame) -> PredictionRows:
        found = self.estimator_.prediction(X.rename(columns=str))
        return PredictionRows(found, np.arange(len(X)), X.index, self._get_columns())


class PredictionRows(BaseDistribution):
    """Rows of a prediction, which is kept whole: at other inputs its passes would be other ones."""

    _tags: ClassVar = {"distr:measuretype": "continuous", "capabilities:approx": ["pdfnorm"]}

    def __init__(self, prediction: Prediction, rows: Any, index: Any = None, columns: Any = None):
        self.prediction, self.rows = prediction, rows
        super().__init__(index, columns)

    def _subset_params(self, rowidx: Any, colidx: Any, coerce_scalar: bool = False) -> dict:
        rows = self.rows if rowidx is None else self.rows[rowidx]
        return {"prediction": self.prediction, "rows": rows}

    def _moment(self, name: str) -> np.ndarray:
        return getattr(self.prediction, name)[self.rows].reshape(self.shape)

    def _at(self, name: str, x: np.ndarray) -> np.ndarray:
        rows, found = np.ravel(self.rows), np.empty(x.size)
        turns = pd.Series(rows).groupby(rows).cumcount()  # rows may repeat, with other values
        for here in turns.groupby(turns).groups.values():
            every = np.resize(x, len(self.prediction.x)).astype(float)
            every[rows[here]] = x.ravel()[here]
            found[here] = getattr(self.prediction, name)(every)[rows[here]]
        return found.reshape(self.shape)

    _mean, _var = partialmethod(_moment, "mean"), partialmethod(_moment, "var")
    _log_pdf, _cdf = partialmethod(_at, "log_prob"), partialmethod(_at, "cdf")

    def _pdf(self, x: np.ndarray) -> np.ndarray:
        return np.exp(self._log_pdf(x))

    def _ppf(self, p: np.ndarray) -> np.ndarray:
        levels, at = np.unique(p, return_inverse=True)
        return self.prediction.quantile(levels)[at.ravel(), self.rows].reshape(self.shape)

    def _energy_self(self) -> np.ndarray:
        # The CRPS at x is E|y - x| - E|y - y'| / 2, and far below and above y E|y - x| adds up.
        low, high = self.prediction.quantile([1e-6, 1 - 1e-6])
        found = high - low - self.prediction.crps(low) - self.prediction.crps(high)
        return found[self.rows].reshape(self.shape)

    def _energy_x(self, x: np.ndarray) -> np.ndarray:
        return self._at("crps", x) + self._energy_self() / 2

    def _sample(self, n_samples: int | None = None) -> Any:
        key = jax.random.key(check_random_state(None).randint(2**31))  # of np.random.seed
        draws = self.prediction.sample(key, n_samples or 1)[:, self.rows]
        if not self.ndim:
            return draws[0] if n_samples is None else pd.DataFrame(draws)
        frames = [pd.DataFrame(draw, self.index, self.columns) for draw in draws]
        return frames[0] if n_samples is None else pd.concat(frames, keys=range(n_samples))
