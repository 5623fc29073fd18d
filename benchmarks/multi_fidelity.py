"""Emulate a costly simulator from few of its runs and many of a cheap one.

    python benchmarks/multi_fidelity.py [--seeds 5] [--jsonl FILE]

The nonlinear pair of Perdikaris et al. (2017): sin(8 pi x), 50 runs, and (x - sqrt(2)) times its
square, 14 runs, each a Latin hypercube. `models.multi_fidelity` under NUTS, 250 steps of warm-up
and 250 draws of two chains. A record has RMSE and CRPS of the costly function at 400 inputs, the
share of them in 90 % intervals, and CPU seconds with compilation. A run goes on where its file
ends.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.random import split
from numpyro.infer import NUTS, init_to_median
from scipy.stats import qmc

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.comparison import versions


def cheap(x: np.ndarray) -> np.ndarray:
    return np.sin(8 * np.pi * x[:, 0])


def costly(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] - np.sqrt(2)) * cheap(x) ** 2


def scores(seed: int) -> dict[str, float]:
    low = qmc.LatinHypercube(1, rng=seed).random(50)
    high = qmc.LatinHypercube(1, rng=seed + 100).random(14)
    x, y = np.concatenate([low, high]), np.concatenate([cheap(low), costly(high)])
    scale, begin = dgp.Standardizer.fit(x, y), time.process_time()
    rows = np.asarray(scale.inputs(x), float), np.asarray(scale.outputs(y), float)
    model, keys = (
        partial(models.multi_fidelity, sizes=(50, 14)),
        split(jax.random.key(seed)),
    )
    with jax.enable_x64(True):
        sampler = NUTS(model, max_tree_depth=6, init_strategy=init_to_median)
        chains = dgp.run_mcmc(
            keys[0], sampler, *rows, num_warmup=250, num_samples=250, num_chains=2, progress=False
        )
    at = np.linspace(0, 1, 400)[:, None]
    options = {"given": rows, "posterior_samples": chains, "standardizer": scale}
    f, truth = dgp.predict(keys[1], model, None, {}, at, **options).f, costly(at)
    ends = f.interval(0.9)
    return {
        "rmse": float(np.sqrt(np.mean((f.mean - truth) ** 2))),
        "crps": float(f.crps(truth).mean()),
        "coverage": float(np.mean((ends[0] <= truth) & (truth <= ends[1]))),
        "cpu_seconds": time.process_time() - begin,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    path = Path("benchmarks/results/multi-fidelity.jsonl")
    parser.add_argument("--jsonl", type=Path, default=path)
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    for seed in range(len(kept), args.seeds):
        row = {"seed": seed, **scores(seed), "versions": versions()}
        print(row, flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
