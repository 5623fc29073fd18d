"""`DeepGPClassifier`: a deep GP for two or more classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from dgp_ppl.sklearn._estimator import DeepGPEstimator


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

    `DeepGPEstimator` documents the parameters, which `compare` has too, and the attributes.

    Attributes:
        classes_: the C classes, sorted.
    """

    def _targets(self, y: np.ndarray) -> tuple[np.ndarray, str, int]:
        try:
            check_classification_targets(y)
            self.classes_, numbers = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise ValueError(
                f"DeepGPClassifier: y has classes that cannot be sorted ({error}), wanted numbers, "
                "or text: fill in None, and make all classes text"
            ) from None
        num = len(self.classes_)
        if num < 2:
            raise ValueError(
                f"DeepGPClassifier: y has one class, {self.classes_.tolist()[0]!r}, wanted at "
                "least two"
            )
        return numbers, "binary" if num == 2 else "multiclass", num

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, [N, C], in the order of `classes_`.

        The probabilities of a row depend on that row alone.

        Args:
            X: inputs, [N, D].

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X cannot be used.
        """
        values = self._row_values(X)["probabilities"]
        return values / values.sum(axis=1, keepdims=True)  # they are from float32

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class, [N].

        Args:
            X: inputs, [N, D].

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X cannot be used.
        """
        numbers = self.predict_proba(X).argmax(axis=1)  # raises before `fit`
        return self.classes_[numbers]
