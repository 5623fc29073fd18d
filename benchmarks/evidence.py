"""Measure how exactly annealing finds the evidence, and what that costs.

The step problem (`step_problem.py`) from the prior, and uci/energy (needs `DGP_PPL_DATA`) from a
mean-field fit with own kernels and M = 50. Two keys each, which should agree.

    python benchmarks/evidence.py [--only step,energy] [--particles 1024] \
        [--json benchmarks/results/evidence.json]
"""

import argparse
import datetime
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import step_problem
from jax import random

import dgp_ppl as dgp

KEYS = (1, 2)
TEMPERATURES = 500  # on energy; the default, about 180 there, leaves particles worth a fifth


def step(particles: int) -> list[dict[str, Any]]:
    x, y = step_problem.step_data()
    guide = dgp.MeanField(step_problem.model)
    rows = []
    for seed in KEYS:
        found, seconds = timed(
            random.key(seed), step_problem.model, guide, {}, x, y, start="prior",
            num_particles=particles, num_islands=16,
        )  # fmt: skip
        rows.append(row("step", seed, found, seconds, 1))
    return rows


def energy(particles: int) -> list[dict[str, Any]]:
    """Fit as `compare` does, and anneal from the fit."""
    fits = []

    @dgp.comparison.register("dsvi_kept")
    def kept(task: Any) -> Any:
        fits.append((task, dgp.comparison.METHODS["dsvi"](task)))
        return fits[-1][1]

    dgp.compare(
        "uci/energy", ["dsvi_kept"], splits=[0], split_key="dsdgp_test_index", inducing=50,
        progress=False,
    )  # fmt: skip
    task, fit = fits[0]
    rows = []
    for seed in KEYS:
        found, seconds = timed(
            random.key(seed), fit.model, fit.guide, fit.result.params, task.x, task.y,
            num_particles=particles, num_noise=2, leapfrogs=10, temperatures=TEMPERATURES,
            **fit.kwargs,
        )  # fmt: skip
        rows.append(row("energy", seed, found, seconds, len(task.y)))
        rows[-1]["elbo"] = fit.elbo_per_datum * len(task.y)
    return rows


def timed(*args: Any, **kwargs: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed_evidence: ")  # they are in the record
        found = dgp.annealed_evidence(*args, **kwargs)
    return found, time.perf_counter() - begun


def row(problem: str, seed: int, found: Any, seconds: float, rows: int) -> dict[str, Any]:
    num = found.log_weights.size
    record = {
        "problem": problem, "key": seed, "rows": rows, "log_evidence": found.log_evidence,
        "standard_error": found.standard_error, "particles": num,
        "islands": len(found.log_weights), "worth": found.effective_particles / num,
        "temperatures": len(found.acceptance), "seconds": seconds, "doubts": list(found.warnings),
    }  # fmt: skip
    print(record, flush=True)
    return record


PROBLEMS = {"step": step, "energy": energy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PROBLEMS))
    parser.add_argument("--particles", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for name in options.only.split(","):
        rows = PROBLEMS[name](options.particles)
        if options.json:
            record = json.loads(options.json.read_text()) if options.json.exists() else {}
            record[f"{name}, {options.particles} particles"] = {
                "rows": rows, "date": datetime.date.today().isoformat(),
                "jax": jax.__version__, "dgp_ppl": dgp.__version__,
                "python": platform.python_version(), "device": jax.devices()[0].device_kind,
            }  # fmt: skip
            options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
