"""Measure the bias of leave-one-out cross-validation that few passes over hidden noise give.

A deep GP with few inducing inputs, whose hidden layer has much noise, at 12 rows and at 300. One
set of 1,000 posterior draws is converted with several numbers of passes, and each LOO is compared
with that of many passes.

    python benchmarks/loo_passes.py [--json FILE]
"""

import argparse
import datetime
import json
import math
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels

PASSES = (1, 10, 20, 40, 160)
ROWS = {12: 2000, 300: 1000}  # rows: passes of the reference
DRAWS = 1000


def model(x: Any, y: Any = None) -> None:
    """Two layers with three and four inducing inputs, and fixed hyperparameters."""
    hidden, last = (jnp.linspace(-2, 2, num)[:, None] for num in (3, 4))
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), hidden)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), last)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f2(f1.sample(x)), lambda f: dist.Normal(f, 0.2)), obs=y)


def converter(rows: int) -> Callable[[int, int], Any]:
    """Fit the model to a noisy step, and return a function of passes and a seed to a tree."""
    x = np.linspace(-2, 2, rows)[:, None]
    y = np.sign(x[:, 0]) + 0.2 * np.random.default_rng(1).normal(size=rows)
    guide = dgp.MeanField(model)
    params = dgp.fit(random.key(0), model, guide, x, y, steps=2000, progress=False).params
    draws = guide.sample_posterior(random.key(1), params, x, y, sample_shape=(DRAWS,))

    def tree_of(passes: int, seed: int) -> Any:
        return dgp.to_inferencedata(
            random.key(seed), model, None, params, x, y, posterior_samples=draws,
            num_samples=DRAWS, num_prior_samples=0, passes=passes,
        )  # fmt: skip

    return tree_of


def measure(rows: int) -> list[dict[str, Any]]:
    """Return the biases of LOO for each number of passes, in nats."""
    tree_of = converter(rows)
    exact = criticism.loo(tree_of(ROWS[rows], 2))
    found = []
    for passes in PASSES:
        tree = tree_of(passes, 3)
        left = criticism.loo(tree).elpd - exact.elpd
        correction = float(tree["constant_data"]["y_loo_correction"].sum())
        row = {
            "rows": rows, "passes": passes, "reference_passes": ROWS[rows], "se": exact.se,
            "not_corrected": left - correction, "corrected": left,
            "estimate": -float(tree["log_likelihood"]["y"].attrs["loo_bias"]),
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        found.append({k: None if math.isnan(v) else v for k, v in row.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the record to this file")
    args = parser.parse_args()
    # Few passes are what is measured.
    warnings.filterwarnings("ignore", "the log-likelihood integrates over")
    record = {
        "date": datetime.date.today().isoformat(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__},
        "rows": [row for rows in ROWS for row in measure(rows)],
    }
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
