"""What richer posteriors gain: ELBO per datum of mean field and of guides that contain it.

Two layers, M = 50, the first of dsdgp's splits (of toy/mcycle the first random one),
hyperparameters learned. Mean field for all steps with `fit`'s defaults, against half of them for
mean field and half for a guide started from it: `GlobalInducing`, and `Diffusion` with mean field
as its anchor. `Diffusion` based on `GlobalInducing` goes on from that fit, for as many steps again.
Each bound is the mean of many draws at the end. Needs the data: set DGP_PPL_DATA.

    python benchmarks/posteriors.py [--sets uci/energy,uci/concrete,uci/boston,toy/mcycle] \
        [--guides global_inducing,diffusion,coupled_diffusion] [--seeds 5] [--json FILE]
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
    parser.add_argument("--sets", default="uci/energy,uci/concrete,uci/boston,toy/mcycle")
    parser.add_argument("--guides", default="global_inducing,diffusion,coupled_diffusion")
    parser.add_argument("--rates", default="0.01", help="learning rates after mean field's")
    parser.add_argument("--chain", type=int, default=8, help="steps K of Diffusion")
    parser.add_argument("--pseudo", type=int, default=100, help="pseudo-inputs")
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--steps", type=int, default=12_000, help="of both together")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.sets.split(","):
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            for row in compare(name, seed, args):
                rows.append({"set": name, "seed": seed} | row)
                print(json.dumps(rows[-1]), flush=True)
                if args.json:
                    args.json.write_text(json.dumps(rows, indent=1) + "\n")


def compare(name: str, seed: int, args: argparse.Namespace) -> Any:
    """Rows of the table for one data set and seed."""
    data = dgp.datasets.load(
        name, split_key="dsdgp_test_index" if name.startswith("uci/") else "test_index"
    )
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

    half, rates = args.steps // 2, [float(r) for r in args.rates.split(",")]
    yield {"guide": "mean_field", "steps": args.steps} | fit(keys[3], mean_field, args.steps)[1]
    first, row = fit(keys[3], mean_field, half)
    yield {"guide": "mean_field", "steps": half} | row
    wanted = args.guides.split(",")
    coupled = dgp.GlobalInducing(deep_gp, initialize.inducing_inputs(keys[4], x, args.pseudo))
    if "diffusion" in wanted:
        guide = dgp.Diffusion(deep_gp, steps=args.chain, base=mean_field)
        for rate in rates:
            row = fit(keys[6], guide, half, start=first.params, learning_rate=rate)[1]
            yield {"guide": "diffusion", "steps": half, "rate": rate} | row
    if {"global_inducing", "coupled_diffusion"} & set(wanted):
        start = coupled.start_from(keys[5], mean_field, first.params, x, **kwargs)
        elbo = evaluate(keys[1], deep_gp, coupled, start, x, y, **kwargs)[0] / len(y)
        yield {"guide": "global_inducing", "steps": 0, "elbo_per_datum": round(elbo, 4)}
        for rate in rates:
            second, row = fit(keys[6], coupled, half, start=start, learning_rate=rate)
            yield {"guide": "global_inducing", "steps": half, "rate": rate} | row
            if "coupled_diffusion" in wanted:
                guide = dgp.Diffusion(deep_gp, steps=args.chain, base=coupled)
                row = fit(keys[7], guide, half, start=second.params, learning_rate=rate)[1]
                yield {"guide": "coupled_diffusion", "steps": half, "rate": rate} | row


if __name__ == "__main__":
    main()
