"""Time Student t noise integrated over its precision against quadrature over f, in one run.

    python benchmarks/student_t.py [--steps 200]

Two layers, M = 100, 4 inputs, minibatches of 1,000 rows: the time of gradients of the ELBO and of
half the predictive density of four particles, and of what predictions at 200 rows with 100 passes
need; medians of five runs in turns, after compilation. The quadrature is what `observe` does for
NumPyro's own StudentT. Writes benchmarks/results/student-t-cpu.json.
"""

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO

import dgp_ppl as dgp
from dgp_ppl import initialize, likelihoods, models

RESULTS = Path(__file__).with_name("results") / "student-t-cpu.json"
ROWS, NEW, TURNS = 8_000, 200, 5


def by_quadrature(f: jax.Array) -> dist.Distribution:
    """Return `likelihoods.student_t`, as NumPyro's distribution."""
    noise: Any = likelihoods.student_t(f)
    return dist.StudentT(noise.df, f, noise.scale)


def seconds(run: Callable[[], Any]) -> float:
    """Return the time of a run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def runs(likelihood: Any, steps: int) -> dict[str, Callable[[], Any]]:
    """Return what to time, by name; compiled."""
    key = jax.random.key(0)
    x = jax.random.normal(key, (ROWS, 4))
    y = jnp.sin(2 * x[:, 0]) + 0.1 * jax.random.t(key, 3.0, (ROWS,))
    layers = initialize.deep_gp(key, x, num_inducing=100, depth=2)
    guide = dgp.MeanField(models.deep_gp)
    options = {"likelihood": likelihood, **layers}
    fitted = dgp.fit(
        key, models.deep_gp, guide, x, y, steps=steps, batch_size=1000, progress=False, **options
    )  # fmt: skip

    def gradient(objective: ELBO) -> Callable[[], Any]:
        """Return the gradients of an objective on 1,000 rows, ten times."""

        def loss(params: dict[str, Any]) -> Any:
            rows = x[:1000], y[:1000]
            return objective.loss(key, params, models.deep_gp, guide, *rows, **options)

        grad = jax.jit(jax.grad(loss))
        return lambda: [grad(fitted.params) for _ in range(10)]

    half = dgp.PredictiveELBO(elbo_share=0.5, num_particles=4)
    prediction = dgp.predict(
        key, models.deep_gp, guide, fitted.params, x[:NEW], num_samples=100, **options
    )
    targets = np.asarray(y[:NEW])
    found: dict[str, Callable[[], Any]] = {
        "10 gradients, ELBO": gradient(TraceMeanField_ELBO()),
        "10 gradients, half predictive": gradient(half),
        "log_prob": lambda: prediction.log_prob(targets),
        "cdf": lambda: prediction.cdf(targets),
        "crps": lambda: prediction.crps(targets),
        "interval": prediction.interval,
    }
    for run in found.values():
        run()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    ways = {"over the precision": likelihoods.student_t, "over f": by_quadrature}
    compiled = {way: runs(likelihood, args.steps) for way, likelihood in ways.items()}
    times: dict[str, dict[str, float]] = {way: {} for way in ways}
    for name in compiled["over f"]:
        turns = [[seconds(compiled[way][name]) for way in ways] for _ in range(TURNS)]
        for way, found in zip(ways, np.median(turns, axis=0), strict=True):
            times[way][name] = float(found)
    record = {
        "date": datetime.date.today().isoformat(), "steps": args.steps, "seconds": times,
        "versions": {"jax": jax.__version__, "numpyro": numpyro.__version__},
        "device": jax.devices()[0].device_kind,
    }  # fmt: skip
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
