"""Compare Sobol indices of Ishigami's function with SALib's, at as many evaluations.

    python benchmarks/sobol.py [--keys 10] [--num 1024] [--json benchmarks/results/sobol.json]

Errors are root mean squares over keys and inputs, of the exact indices.
"""
# pyright: reportMissingImports=false

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from small_functions import ishigami

from dgp_ppl.comparison import versions, write_json
from dgp_ppl.design import sensitivity

EXACT = {"first": [0.31390, 0.44241, 0.0], "total": [0.55759, 0.44241, 0.24368]}


def of_salib(num: int, seed: int) -> dict[str, Any]:
    from SALib.analyze import sobol as analyze
    from SALib.sample import sobol as sample

    problem = {"num_vars": 3, "names": list("abc"), "bounds": [[0.0, 1.0]] * 3}
    x = sample.sample(problem, num, calc_second_order=False, seed=seed)
    found = analyze.analyze(problem, ishigami(x), calc_second_order=False, seed=seed)
    return {"first": found["S1"], "total": found["ST"]}


def of_ours(num: int, seed: int) -> dict[str, Any]:
    box = dict.fromkeys("abc", (0.0, 1.0))
    found = sensitivity(jax.random.key(seed), ishigami, box, num=num)
    return {"first": found.first[:, 0], "total": found.total[:, 0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--num", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rms: dict[str, Any] = {}
    for name, method in (("dgp_ppl", of_ours), ("SALib", of_salib)):
        found = [method(args.num, seed) for seed in range(args.keys)]
        rms[name] = {
            which: float(np.sqrt(np.mean([np.square(f[which] - np.array(exact)) for f in found])))
            for which, exact in EXACT.items()
        }
    print(rms)
    if args.json:
        config = {"keys": args.keys, "num": args.num}
        peers = versions() | {"SALib": version("SALib")}
        write_json(args.json, {"config": config, "versions": peers, "rms": rms})


if __name__ == "__main__":
    main()
