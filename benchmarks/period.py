"""Fit a sine of many cycles with a periodic kernel that starts near the true period.

Six data sets of 400 rows for each number of cycles and start, at several shares of the
hyperparameters' rate for the period. A fit is right if its period is within 1 % and its noise
within 0.03 of the truth.

    python benchmarks/period.py [--shares 1,0.3,0.1,0.03] [--steps 1500] [--json FILE]
"""

import argparse
from functools import partial
from typing import Any

import jax
import numpy as np

import dgp_ppl as dgp
from dgp_ppl import kernels, models
from dgp_ppl.comparison import versions, write_json
from dgp_ppl.inference import default_optimizer

SETS, ROWS, NOISE = 6, 400, 0.1
HYPER = frozenset(["noise", *(f"l1.{p}" for p in ("z", "variance", "lengthscale", "period"))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", default="1,0.3,0.1,0.03")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    z = np.linspace(0, 1, 12)[:, None]
    model, guide = models.svgp, dgp.MeanField(models.svgp)
    keys = jax.random.split(jax.random.key(1), SETS)
    rows: list[dict[str, Any]] = []
    for share in map(float, args.shares.split(",")):
        optimizer = default_optimizer(0.1, args.steps, HYPER, period_share=share)
        for cycles in (5, 30, 60):
            rngs = [np.random.default_rng(seed) for seed in range(SETS)]
            x = np.stack([np.sort(r.uniform(0, cycles, ROWS))[:, None] for r in rngs])
            noise = np.stack([NOISE * r.normal(size=ROWS) for r in rngs])
            y = np.sin(2 * np.pi * x[..., 0]) + noise
            for start in (1.0, 1 + 0.3 / cycles):
                kernel = partial(kernels.Periodic.learned, period=start, lengthscale=1.0)
                fits = dgp.fit_many(
                    keys, model, guide, x, y, each=("x", "y"), z=z, kernel=kernel,
                    steps=args.steps, optimizer=optimizer, progress=False,
                )  # fmt: skip
                found = [np.ravel(fits.params[n]) for n in ("l1.period", "noise")]
                right = (abs(found[0] - 1) < 0.01) & (abs(found[1] - NOISE) < 0.03)
                row = {"share": share, "cycles": cycles, "start": start, "right": int(right.sum())}
                rows.append(row | {"period": found[0].tolist(), "noise": found[1].tolist()})
                print(row, flush=True)
    if args.json:
        about = {"sets": SETS, "rows_of_a_set": ROWS, "steps": args.steps}
        write_json(args.json, {**about, "versions": versions(), "rows": rows})


if __name__ == "__main__":
    main()
