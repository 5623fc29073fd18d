"""Tiny estimators of scikit-learn, and the comparisons whose fits are theirs."""

import functools

from support.comparisons import TINY

import dgp_ppl
from dgp_ppl.sklearn import DeepGPClassifier, DeepGPRegressor

SMALL = {n: a for n, a in TINY.items() if n != "progress"}
SEED = 3


@functools.cache
def run(data, method="dsvi"):
    """Return the run of `compare` on the first split, with one layer for classes."""
    depth = {"iris": 1}.get(data, 2)
    return dgp_ppl.compare(data, [method], splits=1, seed=SEED, depth=depth, **TINY).fits[method]


@functools.cache
def fitted(data, method="dsvi"):
    """Return the estimator with the training rows and settings of `run`."""
    rows = run(data, method)
    kind = DeepGPRegressor if rows.data.task == "regression" else DeepGPClassifier
    options = {"method": method, "random_state": SEED, "depth": rows.config["depth"], **SMALL}
    return kind(**options).fit(rows.x, rows.y)
