"""Time a step of a two-layer deep GP whose outputs are mixtures of four functions.

    python benchmarks/many_outputs.py [--json benchmarks/results/many-outputs-cpu.json]

500 rows of four inputs, M = 64. CPU milliseconds a step: two compiled fits, one 200 steps longer.
If the cost grew with the cube of the outputs, as of a dense covariance, they would need an
orthogonal mixing.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.comparison import versions

STEPS, LATENT = (50, 250), 4


def milliseconds(outputs: int) -> float:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(500, 4))
    f = np.stack([np.sin(3 * x[:, 0] + k * x[:, 1]) for k in range(LATENT)], axis=1)
    y = f @ rng.standard_normal((LATENT, outputs)) + 0.05 * rng.standard_normal((500, outputs))
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    options = {"z": [x[:64]] * 2, "mixing": initialize.mixing(y, LATENT)}
    guide, seconds = dgp.MeanField(models.deep_gp), []
    for steps in 2 * STEPS:  # the first time compiles
        begun = time.process_time()
        with warnings.catch_warnings(action="ignore"):  # short fits
            dgp.fit(
                jax.random.key(0), models.deep_gp, guide, x, y, steps=steps, progress=False,
                **options,
            )  # fmt: skip
        seconds.append(time.process_time() - begun)
    return 1000 * (seconds[3] - seconds[2]) / (STEPS[1] - STEPS[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    path = Path("benchmarks/results/many-outputs-cpu.json")
    parser.add_argument("--json", type=Path, default=path)
    args = parser.parse_args()
    found = {str(n): round(milliseconds(n), 2) for n in (4, 10, 100, 1000)}
    print(found)
    record = {"ms_per_step": found, "versions": versions()}
    args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
