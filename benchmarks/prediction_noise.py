"""Measure the Monte Carlo error of predictions of a deep GP by the number of passes.

The error of mean, variance and log density is the root mean square over rows and keys, against
8,000 passes; of the mean and its sd, in units of the rows' root mean predictive variance. Run it at
two commits to compare them.

    DGP_PPL_DATA=... python benchmarks/prediction_noise.py [--data energy,boston,kin8nm]
        [--layers 2] [--passes 25,100] [--json FILE]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jax import random

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.comparison import versions, write_json
from dgp_ppl.datasets import load

KEYS, STEPS, ROWS = 8, 400, 200


def measure(name: str, layers: int, passes: list[int]) -> Iterator[dict[str, Any]]:
    """Fit to one set, and yield the errors for each number of passes."""
    data = load(f"uci/{name}")
    order = np.random.default_rng(0).permutation(len(data.x))
    test, train = order[:ROWS], order[ROWS:]
    scale = dgp.Standardizer.fit(data.x[train], np.ravel(data.y)[train])
    x, y = scale.inputs(data.x), scale.outputs(np.ravel(data.y))
    key, model = random.key(0), models.deep_gp
    z = dgp.initialize.inducing_inputs(key, x[train], 50)
    options: dict[str, Any] = {"z": (z,) * layers}
    guide = dgp.MeanField(model)
    batch: dict[str, Any] = {} if len(train) <= 1000 else {"batch_size": 500}
    fit = dgp.fit(
        key, model, guide, x[train], y[train], steps=STEPS, progress=False, **options, **batch
    )

    def scores(seed: int, num: int) -> np.ndarray:
        """Return mean, variance and log density of each row, [3, N]."""
        p = dgp.predict(
            random.key(seed), model, guide, fit.params, x[test], num_samples=num, **options
        )
        return np.stack([p.mean, p.var, p.log_prob(y[test])])

    truth = np.mean([scores(100 + i, 1000) for i in range(8)], axis=0)
    sd = float(np.sqrt(truth[1].mean()))
    for num in passes:
        found = np.stack([scores(seed, num) for seed in range(KEYS)])
        errors = np.sqrt(np.mean(np.square(found - truth), axis=(0, 2))) / [sd, sd**2, 1]
        named = dict(zip(("mean", "var", "log_density"), errors.tolist(), strict=True))
        yield {"data": name, "layers": layers, "passes": num, **named}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="energy,boston,kin8nm")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--passes", default="25,100")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.data.split(","):
        for row in measure(name, args.layers, list(map(int, args.passes.split(",")))):
            print(row, flush=True)
            rows.append(row | {"versions": versions()})
    if args.json:
        write_json(args.json, {"rows": rows})


if __name__ == "__main__":
    main()
