"""`DeepGPClassifier`: a deep GP for two or more classes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dgp_ppl.sklearn._estimator import DeepGPEstimator
from dgp_ppl.sklearn._rows import predict_rows

__all__ = ["DeepGPClassifier"]


class DeepGPClassifier(ClassifierMixin, DeepGPEstimator):
    """A deep GP for two or more classes, as a scikit-learn estimator.

    It standardises the inputs. Classes may be numbers, text or booleans.

    >>> import numpy as np
    >>> from dgp_ppl.sklearn import DeepGPClassifier
    >>> X = np.linspace(0.0, 9.0, 30)[:, None]
    >>> y = np.where(X[:, 0] > 4, "late", "early")
    >>> gp = DeepGPClassifier(depth=1, inducing=10, steps=50, random_state=0).fit(X, y)
    >>> gp.classes_.tolist(), gp.predict_proba(X[:4]).shape
    (['early', 'late'], (4, 2))

    Parameters `method`, `model`, `likelihood`, `depth`, `inducing`, `width`, `kernel`,
    `steps`, `batch`, `learning_rate`, `restarts`, `samples`, `draws` and
    `chains` are those of `dgp_ppl.compare`, with its defaults. With ``random_state=s`` the fit is
    that of ``compare(..., seed=s)`` on its first split.

    Args:
        method: name of the method, such as "dsvi", "svgp", "global_inducing" or "nuts"; see
            `dgp_ppl.comparison.METHODS`. Those that need Gaussian noise ("sgpr", "gp" and
            "linear") are for regression alone.
        random_state: seed, a NumPy `RandomState`, or None for another fit each time.
        verbose: whether to show a progress bar.

    Attributes:
        classes_: the C classes, sorted.
        fitted_: the `comparison.MethodFit` of all restarts; those below are of the first one.
        model_: the model function.
        guide_: its guide; None for samplers.
        model_kwargs_: the model's keyword arguments.
        params_: fitted params by name.
        result_: the `FitResult`.
        loss_curve_: loss of each step, [steps].
        elbo_per_datum_: bound on the log evidence, in nats per datum; or None.
        standardizer_: the units of the training inputs.
        n_features_in_: number D of inputs.
        feature_names_in_: their names, if X was a data frame.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Args:
            X: inputs, [N, D]: an array, or a data frame of numbers.
            y: classes, [N].

        Returns:
            The estimator.

        Raises:
            NonFiniteLossError: if the loss became NaN or infinite.
            ValueError: if the data or a parameter cannot be used.
        """
        X, y = self._training_data(X, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        num = len(self.classes_)
        if num < 2:
            raise ValueError(
                f"DeepGPClassifier: y has one class, {self.classes_.tolist()[0]!r}, wanted at "
                "least two"
            )
        return self._fit(X, numbers, "binary" if num == 2 else "multiclass", num)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, [N, C], in the order of `classes_`.

        Those of a row depend on that row alone.

        Args:
            X: inputs, [N, D].

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X cannot be used.
        """
        check_is_fitted(self)
        found = predict_rows(self.fitted_, self._inputs(X), self.samples)
        return found["probabilities"]

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class, [N].

        Args:
            X: inputs, [N, D].

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X cannot be used.
        """
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]
