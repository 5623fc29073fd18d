"""Measure the bias that correlated gradient noise leaves in SGHMC's standard deviations.

Bayesian linear regression with 60 rows, two inputs of correlation 0.95, weights with the prior
N(0, 1) and noise 0.5 has an exactly Gaussian posterior. A row has the ratio of the sampled to the
exact standard deviation in the posterior's narrowest and widest direction, and its standard error
over chains.

    python benchmarks/sghmc_noise.py [--chains 32] [--warmup 10000] [--draws 2000] [--json FILE]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp

ROWS, CORRELATION, NOISE = 60, 0.95, 0.5
THINNING = 20
SETTINGS = ((None, 0.2), (20, 0.2), (20, 0.5), (6, 0.2))


def model(x: Any, y: Any, batch_size: int | None = None) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dist.Normal(x @ w, NOISE), obs=y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--warmup", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=2000, help="of each chain")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal(np.zeros(2), [[1, CORRELATION], [CORRELATION, 1]], ROWS)
    y = x @ [1.0, -0.5] + NOISE * rng.standard_normal(ROWS)
    covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(2))
    mean = covariance @ x.T @ y / NOISE**2
    variances, axes = np.linalg.eigh(covariance)
    rows: list[Any] = []
    record = {"jax": jax.__version__, "numpyro": numpyro.__version__, "rows": rows}
    for batch_size, step_size in SETTINGS:
        kernel = dgp.SGHMC(model, step_size=step_size)
        chains = dgp.run_mcmc(
            random.key(1), kernel, jnp.asarray(x, float), jnp.asarray(y, float),
            batch_size=batch_size, num_warmup=args.warmup, num_samples=args.draws,
            thinning=THINNING, num_chains=args.chains, progress=False,
            extra_fields=("temperature",),
        )  # fmt: skip
        w = (chains.samples["w"].astype(np.float64) - mean) @ axes
        ratios = np.sqrt((w**2).mean(axis=1) / variances)  # [C, 2]
        error = ratios.std(axis=0, ddof=1) / np.sqrt(args.chains)
        row = {
            "batch_size": batch_size,
            "step_size": step_size,
            "ratios": ratios.mean(axis=0).round(4).tolist(),
            "errors": error.round(4).tolist(),
            "temperature": round(float(chains.fields["temperature"].mean()), 4),
            "seconds": round(chains.seconds, 1),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
        if args.json:
            args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
