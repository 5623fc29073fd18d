"""A deep GP as a model of ScoringBench, a benchmark of predictive densities of tables.

    python examples/scoring_bench.py [--steps 1500] [--smoke]

ScoringBench calls `fit`, `predict` and `predict_distribution`, and scores the quantiles. Add the
wrapper to its list of models: `{"DGP": lambda: DeepGPWrapper()}`.
"""

import argparse
import importlib
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from dgp_ppl import metrics
from dgp_ppl.sklearn import DeepGPRegressor

LEVELS = np.arange(1, 100) / 100


class DeepGPWrapper:
    """A `DeepGPRegressor` with the methods of ScoringBench's models; cells may be missing."""

    def __init__(self, **options: Any) -> None:
        imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        self.model = make_pipeline(imputer, DeepGPRegressor(**options))

    def fit(self, X: Any, y: Any) -> "DeepGPWrapper":
        x, y = np.asarray(X, float), np.asarray(y, float)
        seen = np.isfinite(y)
        self.range = float(y[seen].min()), float(y[seen].max())
        self.model.fit(x[seen], y[seen])
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.model.predict(np.asarray(X, float))

    def predict_distribution(self, X: Any) -> Any:
        base = importlib.import_module("scoringbench.univariate.wrappers.base")
        mean, q = self.model.predict(np.asarray(X, float), quantiles=LEVELS)
        make = base.DistributionPrediction.from_multi_quantile
        return make(q, LEVELS, mean=mean, train_range=self.range)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    options = {"steps": 5, "inducing": 5} if args.smoke else {"steps": args.steps}
    data: Any = load_diabetes()
    x, y = data.data, data.target
    model = DeepGPWrapper(**options).fit(x[100:], y[100:])
    _, q = model.model.predict(x[:100], quantiles=LEVELS)
    error = y[:100, None] - q
    pinball = np.maximum(LEVELS * error, (LEVELS - 1) * error)
    print(f"CRPS by quantiles {2 * pinball.mean():.4g}")
    print(f"90 % coverage     {metrics.interval_coverage(y[:100], q[:, 4], q[:, 94]):.2f}")


if __name__ == "__main__":
    main()
