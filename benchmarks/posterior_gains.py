"""Measure what richer posteriors gain over mean field, as ELBO per datum.

The model has two layers with M = 50 and learns its hyperparameters. The split is the first of
dsdgp's (for toy/mcycle the first random one). All fits use `fit`'s defaults:

- mean field for all steps;
- mean field for half of the steps, then `GlobalInducing` started from it;
- mean field for three quarters of the steps, then `Diffusion` with mean field as its base;
- the `GlobalInducing` fit, then `Diffusion` based on it, for a quarter more steps.

`Diffusion` is informed of the target, and its fit keeps the better of start and end. Each bound is
a mean over many draws after the fit. Set DGP_PPL_DATA to the data's folder.

    python benchmarks/posterior_gains.py [--sets uci/energy,uci/concrete,uci/boston,toy/mcycle] \
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
    parser.add_argument("--diffusion-steps", type=int, default=4, help="steps K of Diffusion")
    parser.add_argument("--paths", type=int, default=1, help="paths per gradient step")
    parser.add_argument("--uninformed", action="store_true", help="use a learned score alone")
    parser.add_argument("--pseudo", type=int, default=100, help="number of pseudo-inputs")
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--steps", type=int, default=12_000, help="steps of both fits together")
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
            jax.clear_caches()  # a process holds a limited number of compiled programs


def compare(name: str, seed: int, args: argparse.Namespace) -> Any:
    """Yield the rows of the table for one data set and seed."""
    data = dgp.datasets.load(
        name, split_key="dsdgp_test_index" if name.startswith("uci/") else "test_index"
    )
    train, test = dgp.datasets.splits(data, 1, 0)[0]
    scale = dgp.Standardizer.fit(data.x[train], data.y[train])
    x, y = scale.inputs(data.x[train]), scale.outputs(data.y[train])
    keys = random.split(random.key(seed), 8)
    kwargs = initialize.deep_gp(keys[0], x, num_inducing=args.inducing, depth=2)
    kwargs["share_kernel"] = True  # the default when the results were recorded
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

    def fit_diffusion(key: Any, base: Any, start: Any) -> Any:
        informed = None if args.uninformed else (x, y)
        guide = dgp.Diffusion(deep_gp, steps=args.diffusion_steps, base=base, informed=informed)
        loss = DiffusionELBO(args.paths)
        return fit(key, guide, args.steps // 4, start=start.params, loss=loss, keep_best=True)[1]

    half, most = args.steps // 2, 3 * args.steps // 4
    wanted = args.guides.split(",")
    yield {"guide": "mean_field", "steps": args.steps} | fit(keys[3], mean_field, args.steps)[1]
    if "diffusion" in wanted:
        first, row = fit(keys[3], mean_field, most)
        yield {"guide": "mean_field", "steps": most} | row
        row = fit_diffusion(keys[6], mean_field, first)
        yield {"guide": "diffusion", "steps": args.steps} | row
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
            row = fit_diffusion(keys[7], coupled, second)
            yield {"guide": "coupled_diffusion", "steps": args.steps + args.steps // 4} | row


if __name__ == "__main__":
    main()
