"""Emulate a costly simulator from few of its runs and many of a cheap one.

    python benchmarks/multi_fidelity.py [--pairs forrester,park] [--seeds 5] [--jsonl FILE]

Pairs of Perdikaris et al. (2017), Forrester et al. (2007) and Xiong et al. (2013), with runs in
Latin hypercubes. `models.multi_fidelity` under NUTS, 250 steps of warm-up and 250 draws of two
chains. A record has RMSE and CRPS of the costly function at 400 places, in its standard deviations
there, and the share of them in 90 % intervals; `alone` has these of scikit-learn's exact GP of the
costly runs; and CPU seconds with compilation. A run goes on where its file ends.
"""

import argparse
import itertools
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from emulation import currin, gaussian
from jax.random import split
from numpyro.infer import NUTS, init_to_median
from scipy.stats import qmc
from small_functions import borehole, of_sklearn

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.comparison import versions


def wave(u: np.ndarray) -> np.ndarray:
    return np.sin(8 * np.pi * u[:, 0])


def forrester(u: np.ndarray) -> np.ndarray:
    return (6 * u[:, 0] - 2) ** 2 * np.sin(12 * u[:, 0] - 4)


def averaged_currin(u: np.ndarray) -> np.ndarray:
    moves = np.array([[0.05, 0.05], [0.05, -0.05], [-0.05, 0.05], [-0.05, -0.05]])
    return np.mean([currin(np.maximum(u + move, 0)) for move in moves], axis=0)


def park(u: np.ndarray) -> np.ndarray:
    a, b, c, d = np.maximum(u, 1e-8).T
    return a / 2 * (np.sqrt(1 + (b + c**2) * d / a**2) - 1) + (a + 3 * d) * np.exp(1 + np.sin(c))


def cheap_park(u: np.ndarray) -> np.ndarray:
    a, b, c, _ = u.T
    return (1 + np.sin(a) / 10) * park(u) - 2 * a + b**2 + c**2 + 0.5


# The cheap and the costly function, inputs, and runs of both.
PAIRS: dict[str, Any] = {
    "perdikaris": (wave, lambda u: (u[:, 0] - np.sqrt(2)) * wave(u) ** 2, 1, 50, 14),
    "forrester": (lambda u: 0.5 * forrester(u) + 10 * u[:, 0] - 10, forrester, 1, 15, 5),
    "currin": (averaged_currin, currin, 2, 40, 12),
    "park": (cheap_park, park, 4, 60, 15),
    "borehole": (partial(borehole, flow=5.0, rest=1.5), borehole, 8, 80, 20),
}


def scores(pair: str, seed: int) -> dict[str, Any]:
    cheap, costly, dim, *sizes = PAIRS[pair]
    low = qmc.LatinHypercube(dim, rng=seed).random(sizes[0])
    high = qmc.LatinHypercube(dim, rng=seed + 100).random(sizes[1])
    at = np.random.default_rng(seed).uniform(size=(400, dim))
    truth = costly(at)
    x, y = np.concatenate([low, high]), np.concatenate([cheap(low), costly(high)])
    scale, begin = dgp.Standardizer.fit(x, y), time.process_time()
    rows = np.asarray(scale.inputs(x), float), np.asarray(scale.outputs(y), float)
    model, keys = partial(models.multi_fidelity, sizes=tuple(sizes)), split(jax.random.key(seed))
    with jax.enable_x64(True):
        sampler = NUTS(model, max_tree_depth=6, init_strategy=init_to_median)
        chains = dgp.run_mcmc(
            keys[0], sampler, *rows, num_warmup=250, num_samples=250, num_chains=2, progress=False
        )
    options = {"given": rows, "posterior_samples": chains, "standardizer": scale}
    f = dgp.predict(keys[1], model, None, {}, at, **options).f

    def about(mean: Any, crps: Any, ends: Any) -> dict[str, float]:
        return {
            "rmse": float(np.sqrt(np.mean((mean - truth) ** 2)) / truth.std()),
            "crps": float(np.mean(crps) / truth.std()),
            "coverage": float(np.mean((ends[0] <= truth) & (truth <= ends[1]))),
        }

    found = about(f.mean, f.crps(truth), f.interval(0.9))
    found["cpu_seconds"] = time.process_time() - begin
    own = dgp.Standardizer.fit(high, costly(high))
    inputs = np.asarray(own.inputs(high)), np.asarray(own.outputs(costly(high)))
    mean, sd, *_ = of_sklearn(*inputs, np.asarray(own.inputs(at)), seed)
    mean, crps, ends = gaussian(own.original(mean), sd * np.ravel(own.y_scale), truth)
    return found | {"alone": about(mean, crps, ends)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--seeds", type=int, default=5)
    path = Path("benchmarks/results/multi-fidelity.jsonl")
    parser.add_argument("--jsonl", type=Path, default=path)
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    done = {(r["pair"], r["seed"]) for r in map(json.loads, kept)}
    for pair, seed in itertools.product(args.pairs.split(","), range(args.seeds)):
        if (pair, seed) in done:
            continue
        row = {"pair": pair, "seed": seed, **scores(pair, seed), "versions": versions()}
        print(row, flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
