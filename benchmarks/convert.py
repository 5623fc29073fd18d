"""Time the conversion of a large fit to InferenceData, and measure its peak memory.

python benchmarks/convert.py [--rows 1000000] [--draws 50] [--out FILE]
"""

import argparse
import json
import resource
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import random

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.comparison import versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    key = random.key(0)
    x = np.asarray(random.normal(key, (args.rows, 4)))
    y = np.sin(x[:, 0])
    few = min(5000, args.rows)
    kwargs = initialize.deep_gp(key, jnp.asarray(x[:few]), num_inducing=20, depth=2)
    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    result = dgp.fit(key, model, guide, x[:few], y[:few], steps=20, progress=False, **kwargs)

    before, begun = _peak(), time.perf_counter()
    tree = dgp.to_inferencedata(
        key, model, guide, result.params, x, y, num_samples=args.draws, num_prior_samples=0,
        passes=2, **kwargs,
    )  # fmt: skip
    record = {
        "rows": args.rows,
        "draws": args.draws,
        "passes": 2,
        "seconds": round(time.perf_counter() - begun, 1),
        "peak_gb": round(_peak() - before, 2),
        "tree_gb": round(tree.nbytes / 2**30, 2),
        "versions": versions(),
    }
    print(json.dumps(record, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


def _peak() -> float:
    """Return the peak memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
