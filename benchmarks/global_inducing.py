"""What coupling the layers gains: ELBO per datum of mean field and of `GlobalInducing`.

Two layers, M = 50, the first of dsdgp's splits, hyperparameters learned. Mean field for all steps
with `fit`'s defaults, against half of them for mean field and half for `GlobalInducing` started
from it. Each bound is the mean of many draws at the end. Needs the data: set DGP_PPL_DATA.

    python benchmarks/global_inducing.py [--sets energy,concrete,boston] [--rates 0.01,0.03]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from jax import random

import dgp_ppl as dgp
from dgp_ppl import initialize
from dgp_ppl.inference.fit import evaluate
from dgp_ppl.metrics import mean_log_density, rmse
from dgp_ppl.models import deep_gp

DRAWS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="energy,concrete,boston", help="comma-separated")
    parser.add_argument("--rates", default="0.01", help="GlobalInducing's learning rates")
    parser.add_argument("--pseudo", type=int, default=100, help="pseudo-inputs")
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--steps", type=int, default=12_000, help="of both together")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.sets.split(","):
        for seed in range(args.seeds):
            for row in compare(name, seed, args):
                rows.append({"set": name, "seed": seed} | row)
                print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


def compare(name: str, seed: int, args: argparse.Namespace) -> Any:
    """Rows of the table for one data set and seed."""
    data = dgp.datasets.load(f"uci/{name}", split_key="dsdgp_test_index")
    train, test = dgp.datasets.splits(data, 1, 0)[0]
    scale = dgp.Standardizer.fit(data.x[train], data.y[train])
    x, y = scale.inputs(data.x[train]), scale.outputs(data.y[train])
    keys = random.split(random.key(seed), 8)
    kwargs = initialize.deep_gp(keys[0], x, num_inducing=args.inducing, depth=2)
    mean_field = dgp.MeanField(deep_gp)

    def fit(key: Any, guide: Any, steps: int, **options: Any) -> Any:
        result = dgp.fit(
            key, deep_gp, guide, x, y, steps=steps, batch_size=1000, progress=False,
            **kwargs, **options,
        )  # fmt: skip
        elbo, error = evaluate(
            keys[1], deep_gp, guide, result.params, x, y, num_draws=DRAWS, **kwargs
        )
        held = dgp.predict(
            keys[2], deep_gp, guide, result.params, data.x[test], standardizer=scale, **kwargs
        )
        return result, {
            "elbo_per_datum": round(elbo / len(y), 4),
            "error": round(error / len(y), 5),
            "rmse": round(rmse(data.y[test], held.mean), 4),
            "log_density": round(mean_log_density(held.log_prob(data.y[test])), 4),
            "seconds": round(result.seconds, 1),
        }

    yield {"guide": "mean field", "steps": args.steps} | fit(keys[3], mean_field, args.steps)[1]
    first, row = fit(keys[3], mean_field, args.steps // 2)
    yield {"guide": "mean field", "steps": args.steps // 2} | row
    pseudo = initialize.inducing_inputs(keys[4], x, args.pseudo)
    guide = dgp.GlobalInducing(deep_gp, pseudo)
    start = guide.start_from(keys[5], mean_field, first.params, x, **kwargs)
    elbo = evaluate(keys[1], deep_gp, guide, start, x, y, **kwargs)[0] / len(y)
    yield {"guide": "global inducing", "steps": 0, "elbo_per_datum": round(elbo, 4)}
    for rate in map(float, args.rates.split(",")):
        row = fit(keys[6], guide, args.steps // 2, start=start, learning_rate=rate)[1]
        yield {"guide": "global inducing", "steps": args.steps // 2, "rate": rate} | row


if __name__ == "__main__":
    main()
