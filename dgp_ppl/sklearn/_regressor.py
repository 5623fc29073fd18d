"""`DeepGPRegressor`: a deep GP for a real target."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dgp_ppl.prediction import pool
from dgp_ppl.sklearn._estimator import DeepGPEstimator


class DeepGPRegressor(RegressorMixin, DeepGPEstimator):
    """A deep GP for regression, as a scikit-learn estimator.

    It standardises inputs and target, and predicts in the units of the data.

    >>> import numpy as np
    >>> from dgp_ppl.sklearn import DeepGPRegressor
    >>> X = np.linspace(0.0, 9.0, 30)[:, None]
    >>> gp = DeepGPRegressor(depth=1, inducing=10, steps=50, random_state=0).fit(X, 3 * X[:, 0])
    >>> mean, std = gp.predict(X[:4], return_std=True)
    >>> mean.shape, std.shape
    ((4,), (4,))

    `DeepGPEstimator` documents the parameters, which `compare` has too, and the attributes.
    """

    def _targets(self, y: np.ndarray) -> tuple[np.ndarray, str, int]:
        try:
            found = np.asarray(y, np.float64)
        except ValueError as error:
            raise ValueError(
                f"DeepGPRegressor: y is text ({error}), wanted numbers; use DeepGPClassifier for "
                "classes"
            ) from error
        if np.isnan(found).any():
            raise ValueError("DeepGPRegressor: y has missing values (None); leave these rows out")
        return found, "regression", 1

    def predict(self, X: Any, return_std: bool = False, quantiles: ArrayLike | None = None) -> Any:
        """Return the predictive mean, and what else is asked for.

        Mean, standard deviation and quantiles are of y, with the noise. The values of a row depend
        on that row alone.

        Args:
            X: inputs, [N, D].
            return_std: whether to return the standard deviation too.
            quantiles: levels in (0, 1), a number or Q of them; None for no quantiles.

        Returns:
            The mean, [N]; or a tuple of the mean, the standard deviation, [N], and the quantiles,
            [N] or [N, Q], as far as they are asked for.

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X or a level cannot be used.
        """
        levels = np.asarray([] if quantiles is None else quantiles)
        is_bad = levels.dtype.kind not in "fiu" or (quantiles is not None and not levels.size)
        if is_bad or levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(
                f"DeepGPRegressor.predict: quantiles is {quantiles}, wanted levels strictly "
                "between 0 and 1"
            )
        found = self._row_values(X, levels.ravel().tolist())
        values = [found["mean"]]
        if return_std:
            values.append(np.sqrt(found["var"]))
        if quantiles is not None:
            values.append(found["quantiles"] if levels.ndim else found["quantiles"][:, 0])
        return values[0] if len(values) == 1 else tuple(values)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, noise: bool = True
    ) -> np.ndarray:
        """Draw from the predictive distribution, [N, n_samples].

        Args:
            X: inputs, [N, D].
            n_samples: number of draws.
            random_state: seed, or a NumPy `RandomState`.
            noise: True draws y, each row with its own noise. False draws the function f, jointly at
                all rows, at a cost of N³.

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X cannot be used.
        """
        check_is_fitted(self)
        key = jax.random.key(int(check_random_state(random_state).randint(2**31)))
        if noise:
            return self.prediction(X).sample(key, n_samples).T
        members = self.fitted_.predictions(self._checked(X, reset=False), self.samples)
        bare = pool([dataclasses.replace(m, standardizer=None) for m in members])
        draws = bare.function_draws(key, n_samples)
        draws = draws[..., 0] if draws.ndim == 3 else draws  # a second output is a log scale
        return self.fitted_.standardizer.original(draws).T
