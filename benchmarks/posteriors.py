"""What richer posteriors gain: ELBO per datum of mean field and of guides that contain it.

Two layers, M = 50, the first of dsdgp's splits (of toy/mcycle the first random one),
hyperparameters learned, all with `fit`'s defaults. Mean field for all steps, against half of them
for mean field and half for `GlobalInducing` started from it, and against three quarters for mean
field and the last for `Diffusion` with mean field as its anchor. `Diffusion` based on
`GlobalInducing` goes on from that fit for a quarter more. The score is told of the target
(``informed``), and of its fit the better of start and end is kept. Each bound is the mean of many
draws at the end. Needs the data: set DGP_PPL_DATA.

    python benchmarks/posteriors.py [--sets uci/energy,uci/concrete,uci/boston,toy/mcycle] \
        [--guides global_inducing,diffusion,coupled_diffusion] [--seeds 5] [--json FILE]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
from jax import random

import dgp_ppl as dgp
from dgp_ppl import initialize
from dgp_ppl.inference import DiffusionELBO, evaluate
from dgp_ppl.metrics import mean_log_density, rmse
from dgp_ppl.models import deep_gp

DRAWS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="uci/energy,uci/concrete,uci/boston,toy/mcycle")
    parser.add_argument("--guides", default="global_inducing,diffusion,coupled_diffusion")
    parser.add_argument("--chain", type=int, default=4, help="steps K of Diffusion")
    parser.add_argument("--chains", type=int, default=1, help="chains of a step")
    parser.add_argument("--uninformed", action="store_true", help="a learned score alone")
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
            jax.clear_caches()  # a process can hold only so many compiled programs


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

    def chained(key: Any, base: Any, start: Any) -> Any:
        informed = None if args.uninformed else (x, y)
        guide = dgp.Diffusion(deep_gp, steps=args.chain, base=base, informed=informed)
        loss = DiffusionELBO(args.chains)
        return fit(key, guide, args.steps // 4, start=start.params, loss=loss, keep_best=True)[1]

    half, most = args.steps // 2, 3 * args.steps // 4
    wanted = args.guides.split(",")
    yield {"guide": "mean_field", "steps": args.steps} | fit(keys[3], mean_field, args.steps)[1]
    if "diffusion" in wanted:
        first, row = fit(keys[3], mean_field, most)
        yield {"guide": "mean_field", "steps": most} | row
        yield {"guide": "diffusion", "steps": args.steps} | chained(keys[6], mean_field, first)
    if {"global_inducing", "coupled_diffusion"} & set(wanted):
        first, row = fit(keys[3], mean_field, half)
        yield {"guide": "mean_field", "steps": half} | row
        coupled = dgp.GlobalInducing(deep_gp, initialize.inducing_inputs(keys[4], x, args.pseudo))
        start = coupled.start_from(keys[5], mean_field, first.params, x, **kwargs)
        elbo = evaluate(keys[1], deep_gp, coupled, start, x, y, **kwargs)[0] / len(y)
        yield {"guide": "global_inducing", "steps": half, "elbo_per_datum": round(elbo, 4)}
        second, row = fit(keys[6], coupled, half, start=start)
        yield {"guide": "global_inducing", "steps": args.steps} | row
        if "coupled_diffusion" in wanted:
            row = chained(keys[7], coupled, second)
            yield {"guide": "coupled_diffusion", "steps": args.steps + args.steps // 4} | row


if __name__ == "__main__":
    main()
