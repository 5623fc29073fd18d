"""Compare samplers on posteriors with separate modes: effective draws per CPU second.

Problems:

- ``mixture``: ten values with the prior N(0, I) and two modes 32 of their standard deviations
  apart, which hold 30 % and 70 % of the posterior; the functional is the share of the second mode;
- ``step``: the two layers of `step_problem.py`; the functionals are its 16 inducing values.

Samplers, all from the prior or from its draws:

- ``smc``: `annealed_evidence` with 1,024 particles in 16 islands, resampled by their weights;
- ``tempering``: `ParallelTempering` with 16 temperatures, 16 chains, 600 steps of warm-up and 1,000
  draws;
- ``nuts``: 16 chains, 500 steps of warm-up and 500 draws.

Islands and chains are independent groups. The jackknife over them gives the standard error of a
posterior mean, and the posterior variance divided by its square is the number of effective draws;
the table has the worst functional's. Seconds are the CPU's, with compilation and warm-up. Two keys
each. ``error`` is the share of the second mode less its exact value; for ``step``, whose means are
not known, the largest difference from the means of the first sampler, in standard errors.

    python benchmarks/modes.py [--problems mixture,step] [--samplers smc,nuts] [--json FILE]
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import step_problem
from jax import random
from numpyro.infer import NUTS

import dgp_ppl as dgp
from dgp_ppl import kernels

DIM, SD, SHARES = 10, 0.2, (0.3, 0.7)
GROUPS = 16


def mixture(x: Any) -> None:
    """Two modes at -1 and 1 in each of ten inducing values."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), x, out=DIM)
    f(x)  # draws v
    at = [
        dist.Normal(c, SD).log_prob(f.v).sum() + jnp.log(p)
        for c, p in zip((-1, 1), SHARES, strict=True)
    ]
    numpyro.factor("data", jnp.logaddexp(*at))


class Problem(NamedTuple):
    """A model and its arguments, functionals of draws, and their exact means if they are known."""

    model: Callable[..., None]
    args: tuple[Any, ...]
    functionals: Callable[[dict[str, np.ndarray]], np.ndarray]
    means: np.ndarray | None


def mixture_problem() -> Problem:
    second = lambda draws: (draws["l1.v"].sum(axis=(-2, -1)) > 0)[..., None].astype(float)  # noqa: E731
    return Problem(mixture, (jnp.zeros((1, 1)),), second, np.array(SHARES[1:]))


def step() -> Problem:
    values = lambda draws: np.concatenate([draws["l1.v"], draws["l2.v"]], -2)[..., 0]  # noqa: E731
    return Problem(step_problem.model, step_problem.step_data(), values, None)


PROBLEMS = {"mixture": mixture_problem, "step": step}


def grouped(values: np.ndarray, log_weights: Any = None) -> tuple[Any, Any, Any]:
    """Return weighted means of values [G, S, d], jackknife errors over groups, and variances."""
    log_weights = np.zeros(values.shape[:2]) if log_weights is None else np.asarray(log_weights)
    w = np.exp(log_weights - log_weights.max(), dtype=np.float64).reshape(len(values), -1, 1)
    sums, totals = (w * values).sum(1), w.sum(1)  # [G, d], [G, 1]
    mean = sums.sum(0) / totals.sum()
    without = (sums.sum(0) - sums) / (totals.sum() - totals)
    error = np.sqrt((len(values) - 1) * without.var(0))
    return mean, error, (w * (values - mean) ** 2).sum((0, 1)) / w.sum()


def smc(key: Any, problem: Problem) -> dgp.Chains:
    return dgp.annealed_evidence(
        key, problem.model, dgp.MeanField(problem.model), {}, *problem.args, target="model",
        start="prior", num_particles=1024, num_islands=GROUPS, progress=False,
    ).chains  # fmt: skip


def mcmc(key: Any, problem: Problem, kernel: Any, warmup: int, draws: int) -> dgp.Chains:
    return dgp.run_mcmc(
        key, kernel, *problem.args, num_warmup=warmup, num_samples=draws, num_chains=GROUPS,
        progress=False,
    )  # fmt: skip


SAMPLERS = {
    "smc": smc,
    "tempering": lambda k, p: mcmc(k, p, dgp.ParallelTempering(p.model), 600, 1000),
    "nuts": lambda k, p: mcmc(k, p, NUTS(p.model), 500, 500),
}


def measure(name: str, sampler: str, first: dict[int, Any]) -> dict[str, Any]:
    """Return the row of a sampler; `first` has mean and error of the first sampler by seed."""
    problem = PROBLEMS[name]()
    found, seconds, gaps = [], [], []
    for seed in (1, 2):
        begun = time.process_time()
        chains = SAMPLERS[sampler](random.key(seed), problem)
        seconds.append(time.process_time() - begun)
        values = problem.functionals(chains.samples).astype(np.float64)
        mean, error, variance = grouped(values, chains.log_weights)
        found.append(float(np.min(variance / np.maximum(error, 1e-9) ** 2)))
        if problem.means is not None:
            gaps.append(float(mean[0] - problem.means[0]))
        else:
            other, its_error = first.setdefault(seed, (mean, error))
            gaps.append(float(np.max(np.abs(mean - other) / np.hypot(error, its_error))))
    return {
        "problem": name,
        "sampler": sampler,
        "seconds": np.round(seconds, 1).tolist(),
        "effective": np.round(found, 1).tolist(),
        "effective_per_second": np.round(np.divide(found, seconds), 2).tolist(),
        "error": np.round(gaps, 3).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Any] = []
    record = {
        "dgp_ppl": dgp.__version__, "jax": jax.__version__, "numpyro": numpyro.__version__,
        "python": platform.python_version(), "rows": rows,
    }  # fmt: skip
    for name in args.problems.split(","):
        first: dict[int, Any] = {}
        for sampler in args.samplers.split(","):
            rows.append(measure(name, sampler, first))
            print(json.dumps(rows[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
