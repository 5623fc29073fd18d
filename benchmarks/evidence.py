"""Measure how exactly annealing finds the evidence, and what that costs.

The step problem (`step_problem.py`) from the prior and from a fitted `Flow`, and uci/energy (needs
`DGP_PPL_DATA`) with own kernels and M = 50 from a mean-field fit and from a `Flow`. Two keys each,
which should agree.

    python benchmarks/evidence.py [--only step,step_flow,energy,energy_flow] [--particles 1024] \
        [--temperatures 500] [--json benchmarks/results/evidence.json]
"""

import argparse
import datetime
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import step_problem
from jax import random

import dgp_ppl as dgp

KEYS = (1, 2)


def step(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    x, y = step_problem.step_data()
    guide = dgp.MeanField(step_problem.model)
    options |= {"start": "prior", "num_islands": 16}
    for seed in KEYS:
        yield row("step", seed, step_problem.model, guide, {}, x, y, **options)


def step_flow(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Anneal from the flow of `step_problem.py --steps 4000 --paths 32`."""
    x, y = step_problem.step_data()
    guide, params = step_problem.Study(0, 4000, 32, 3e-3).fitted("flow:base=gi")
    for seed in KEYS:
        yield row("step_flow", seed, step_problem.model, guide, params, x, y, **options)


def energy(options: dict[str, Any], method: str = "dsvi") -> Iterator[dict[str, Any]]:
    """Fit as `compare` does, and anneal from the fit."""
    fits = []

    @dgp.comparison.register(f"{method}_kept")
    def kept(task: Any) -> Any:
        fits.append((task, dgp.comparison.METHODS[method](task)))
        return fits[-1][1]

    dgp.compare(
        "uci/energy", [f"{method}_kept"], splits=[0], split_key="dsdgp_test_index", inducing=50,
        progress=False,
    )  # fmt: skip
    task, fit = fits[0]
    options |= {"num_noise": 2, "leapfrogs": 10} | fit.kwargs
    name = "energy" if method == "dsvi" else f"energy_{method}"
    for seed in KEYS:
        params = fit.result.params
        found = row(name, seed, fit.model, fit.guide, params, task.x, task.y, **options)
        yield found | {"rows": len(task.y), "elbo": fit.elbo_per_datum * len(task.y)}


def row(problem: str, seed: int, *args: Any, **kwargs: Any) -> dict[str, Any]:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed_evidence: ")  # they are in the record
        found = dgp.annealed_evidence(random.key(seed), *args, **kwargs)
    num = found.log_weights.size
    record = {
        "problem": problem, "key": seed, "log_evidence": found.log_evidence,
        "standard_error": found.standard_error, "particles": num,
        "islands": len(found.log_weights), "worth": found.effective_particles / num,
        "temperatures": len(found.acceptance), "seconds": time.perf_counter() - begun,
        "doubts": list(found.warnings),
    }  # fmt: skip
    print(record, flush=True)
    return record


PROBLEMS: dict[str, Callable[[dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "step": step, "step_flow": step_flow, "energy": energy,
    "energy_flow": partial(energy, method="flow"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PROBLEMS))
    parser.add_argument("--particles", type=int, default=1024)
    parser.add_argument("--temperatures", type=int, help="as many as the path is long without it")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    given = {"num_particles": options.particles}
    if options.temperatures is not None:
        given["temperatures"] = options.temperatures
    for name in options.only.split(","):
        rows = []
        for found in PROBLEMS[name](dict(given)):
            rows.append(found)
            if not options.json:
                continue
            record = json.loads(options.json.read_text()) if options.json.exists() else {}
            record[f"{name}, {options.particles} particles"] = {
                "rows": rows, "date": datetime.date.today().isoformat(),
                "jax": jax.__version__, "dgp_ppl": dgp.__version__,
                "python": platform.python_version(), "device": jax.devices()[0].device_kind,
            }  # fmt: skip
            options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
