"""Measure how exactly annealing finds the evidence, and what that costs.

The step problem (`step_problem.py`) from the prior, and uci/energy (needs `DGP_PPL_DATA`) from a
mean-field fit with own kernels and M = 50. Two keys each, which should agree. For the step problem
the waste-free variant (Dau & Chopin 2022), in which every state of a chain is a particle, runs
through the same plan with the same number of transitions.

    python benchmarks/evidence.py [--only step,energy,waste-free] [--particles 2048] \
        [--json benchmarks/results/evidence.json]
"""

import argparse
import datetime
import json
import math
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import step_problem
from jax import random
from scipy.special import logsumexp

import dgp_ppl as dgp
from dgp_ppl._partition import Call, Partition
from dgp_ppl._terminal import Progress
from dgp_ppl.inference import log_mean
from dgp_ppl.inference.evidence._smc import anneal, pilot
from dgp_ppl.inference.evidence._starts import start_at_prior
from dgp_ppl.inference.evidence._target import Arrays, Points, Target

KEYS = (1, 2)
TEMPERATURES = 500  # on energy; the default, about 180 there, leaves particles worth a fifth
PARENTS = 4  # waste-free: one in so many particles is the parent of a chain


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


def waste_free(particles: int) -> list[dict[str, Any]]:
    """Both variants through one plan, in 16 islands."""
    model, (x, y) = step_problem.model, step_problem.step_data()
    call, guide = Call((x, y), {}), dgp.MeanField(step_problem.model)
    guide.setup(x, y)
    base, params = start_at_prior(random.key(0), guide, {}, call)
    partition, data = Partition.split(model, call, base)
    sites = {n: jnp.zeros(layer.shape) for n, layer in base.layers.items()}
    target, arrays = Target(base, partition, "bound", 15, sites), Arrays(params, data)
    G, rows = 16, []
    B = particles // G
    noise = random.split(random.key(0), (G + 1, 1))
    z = random.normal(random.key(1), (G, B, target.dim))
    with Progress(False, None, "") as bar:
        plan = pilot(random.key(2), target, z[0], noise[-1], arrays, None, bar)
        for seed in KEYS:
            key = random.key(seed)
            begun = time.perf_counter()
            run = anneal(key, target, z, noise[:G], plan, arrays, bar)
            plain = np.asarray(logsumexp(run.log_weights, axis=1)) - math.log(B)
            middle = time.perf_counter()
            chains = annealed_waste_free(key, target, z, noise[:G], plan, arrays)
            ended = time.perf_counter()
            for name, islands, seconds in (
                ("plain", plain, middle - begun), ("waste-free", chains, ended - middle)
            ):  # fmt: skip
                value, error, _ = log_mean(np.asarray(islands))
                rows.append({
                    "problem": f"step, {name}", "key": seed, "particles": particles,
                    "temperatures": len(plan.sizes), "log_evidence": value,
                    "standard_error": error, "islands_sd": float(np.std(islands, ddof=1)),
                    "seconds": seconds,
                })  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def annealed_waste_free(
    key: Any, target: Target, z: Any, noise: Any, plan: Any, arrays: Arrays
) -> np.ndarray:
    """Return the log evidence of each island, [G]."""
    G, B = z.shape[:2]
    M = B // PARENTS
    rng = np.random.default_rng(np.asarray(random.bits(key, (4,), jnp.uint32)))
    points = target.points(z.reshape(G * B, -1), jnp.repeat(noise, B, axis=0), arrays)
    noises, total = jnp.repeat(noise, M, axis=0), np.zeros(G)
    for k in range(len(plan.sizes)):
        increments = (plan.betas[k + 1] - plan.betas[k]) * np.asarray(points.ratio, np.float64)
        increments = increments.reshape(G, B)
        log_sum = np.asarray(logsumexp(increments, axis=1, keepdims=True))
        total += log_sum[:, 0] - math.log(B)
        edges = np.cumsum(np.exp(increments - log_sum), axis=1)
        at = (rng.random((G, 1)) + np.arange(M)) / M
        chosen = [np.minimum(np.searchsorted(e, a), B - 1) for e, a in zip(edges, at, strict=True)]
        rows = (np.array(chosen) + B * np.arange(G)[:, None]).ravel()
        moved = Points(*(a[rows] for a in points))
        states = [moved]
        for move in range(PARENTS - 1):
            key_move = random.fold_in(random.fold_in(key, k), move)
            size, scale = plan.sizes[k], plan.scales[k]
            moved, _ = target.move(key_move, moved, noises, plan.betas[k + 1], size, scale, arrays)
            states.append(moved)
        # [P, G M, ...] to [G P M, ...]: particles of an island stay together.
        points = Points(*(
            jnp.moveaxis(jnp.stack(a).reshape(PARENTS, G, M, *a[0].shape[1:]), 0, 1)
            .reshape(G * B, *a[0].shape[1:])
            for a in zip(*states, strict=True)
        ))  # fmt: skip
    return total


PROBLEMS = {"step": step, "energy": energy, "waste-free": waste_free}


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
