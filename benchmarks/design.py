"""Sequential design by `Study` with its defaults: two minima, and a function to learn.

    python benchmarks/design.py [--seeds 10] [--cases branin,hartmann6,hill] [--botorch] \
        [--surrogate gp] [--batch 1] [--jsonl benchmarks/results/design.jsonl]

Branin has 15 runs that fill the space and 20 that are asked, Hartmann's function of six inputs 20
and 40; the record has the regret. The hill has 15 and 25 by `integrated_variance`; the record has
the error at 1,000 places, and that of an exact GP of 60 random runs. Seconds are of CPU: of all
questions, and the median of those after the first fit. `--batch` runs are asked at once, and
`--surrogate bayes` is a deep GP. `--botorch` looks for the minima by BoTorch's exact GP and
logarithm of the expected improvement, from the same first runs. A run goes on where its file ends.
Keep it on one core (`taskset -c 0`, and OPENBLAS_NUM_THREADS=1).
"""
# pyright: reportMissingImports=false

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from emulation import branin
from jax import random
from small_functions import hill, of_sklearn

from dgp_ppl import Standardizer
from dgp_ppl.comparison import versions
from dgp_ppl.design import Study

A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(u: np.ndarray) -> np.ndarray:
    return -np.exp(-np.einsum("kd,nkd->nk", A, np.square(u[:, None] - P))) @ [1.0, 1.2, 3.0, 3.2]


CASES: dict[str, Any] = {  # function, inputs, first runs, all runs, lowest value
    "branin": (branin, 2, 15, 35, 0.397887),
    "hartmann6": (hartmann6, 6, 20, 60, -3.32237),
    "hill": (hill, 2, 15, 40, None),
}


def one(case: str, seed: int, surrogate: str, batch: int) -> dict[str, Any]:
    """Make a study, and return what it found and what it cost."""
    function, dim, initial, budget, lowest = CASES[case]
    names = [f"x{i + 1}" for i in range(dim)]
    at = lambda x: float(function(np.array([[x[n] for n in names]]))[0])  # noqa: E731
    options: Any = {"criterion": "integrated_variance"} if lowest is None else {}
    bounds = dict.fromkeys(names, (0.0, 1.0))
    options |= {"surrogate": surrogate, "initial": initial}
    study, seconds = Study(random.key(seed), bounds, **options), []
    while len(study) < budget:
        begun = time.process_time()
        asked = study.ask(batch)
        seconds.append(time.process_time() - begun)
        for x in asked:
            study.tell(x, at(x))
    found: dict[str, Any] = {
        "seconds": sum(seconds),
        "median": np.median(seconds[initial // batch + 1 :]),
    }
    if lowest is not None:
        return found | {"regret": study.best.y - lowest}
    rng = np.random.default_rng(seed)
    test = rng.uniform(size=(1000, dim))
    p = study.predict([dict(zip(names, row, strict=True)) for row in test])
    x = rng.uniform(size=(60, dim))
    scale = Standardizer.fit(x, function(x))
    x, y = np.asarray(scale.inputs(x)), np.asarray(scale.outputs(function(x)))
    mean, *_ = of_sklearn(x, y, np.asarray(scale.inputs(test)), seed)
    error = lambda m: float(np.sqrt(np.mean(np.square(m - function(test)))))  # noqa: E731
    return found | {"rmse": error(p.f.mean), "rmse_of_random": error(scale.original(mean))}


def by_botorch(case: str, seed: int) -> dict[str, Any]:
    """Return the regret of BoTorch from the first runs of the study, and its seconds."""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    function, dim, initial, budget, lowest = CASES[case]
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    bounds = {f"x{i + 1}": (0.0, 1.0) for i in range(dim)}
    first = Study(random.key(seed), bounds, initial=initial).ask(initial)
    x = torch.tensor([list(row.values()) for row in first], dtype=torch.double)
    y, seconds = torch.tensor(function(x.numpy())), []
    while len(x) < budget:
        begun = time.process_time()
        model = SingleTaskGP(x, -y[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        box = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, dim)
        improvement = LogExpectedImprovement(model, best_f=(-y).max())
        new, _ = optimize_acqf(improvement, box, q=1, num_restarts=10, raw_samples=512)
        seconds.append(time.process_time() - begun)
        x, y = torch.cat([x, new]), torch.cat([y, torch.tensor(function(new.numpy()))])
    found = {"seconds": sum(seconds), "median": float(np.median(seconds[1:]))}
    return found | {"regret": float(y.min()) - lowest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--botorch", action="store_true")
    parser.add_argument("--surrogate", default="gp")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--jsonl", type=Path, default=Path("benchmarks/results/design.jsonl"))
    args = parser.parse_args()
    lines = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    by = "botorch" if args.botorch else {"gp": "dgp_ppl"}.get(args.surrogate, args.surrogate)
    done = {(r["case"], r["seed"], r.get("by", "dgp_ppl")) for r in map(json.loads, lines)}
    for case in args.cases.split(","):
        for seed in range(args.seeds):
            if (case, seed, by) in done:
                continue
            asked = () if args.botorch else (args.surrogate, args.batch)
            found = (by_botorch if args.botorch else one)(case, seed, *asked)
            record = {"case": case, "seed": seed, "by": by, **found, **versions()}
            with args.jsonl.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print({n: record[n] for n in list(record)[:7]}, flush=True)


if __name__ == "__main__":
    main()
