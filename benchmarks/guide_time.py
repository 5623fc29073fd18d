"""Time of one gradient step of every guide, as a multiple of MeanField's in the same run.

Through `dgp_ppl.fit` and ``SVI.update`` under `jax.jit`, minibatch and Adam included, at two
of step_time.py's shapes: a (D = width = 8) and c (MNIST's: 784 inputs, widths 30, 10 classes), both
with M = 100 and B = 1000.

    python benchmarks/guide_time.py [--shapes a2,c2] [--guides diffusion] [--json FILE]
"""

import argparse
import datetime
import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax import random
from numpyro.infer import SVI
from step_time import problem, timed, timed_fit

import dgp_ppl as dgp
from dgp_ppl import initialize

MEAN_POINTS = 500  # of Decoupled, whose covariance has the shape's 100
COUPLED_POINTS = 200  # of the MeanField that it is to beat


def guides(model: Any, x: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Every guide by name, with the model's arguments that it goes with."""
    key = random.key(0)
    pseudo = initialize.inducing_inputs(key, x, 100)
    layers = [x[:MEAN_POINTS]]
    for mean in kwargs["mean"][:-1]:
        layers.append(mean(layers[-1]))
    more = [x[:COUPLED_POINTS]]
    for mean in kwargs["mean"][:-1]:
        more.append(mean(more[-1]))
    return {
        "mean_field": (dgp.MeanField(model), kwargs),
        "global_inducing": (dgp.GlobalInducing(model, pseudo), kwargs),
        "diffusion": (dgp.Diffusion(model, steps=8), kwargs),
        "implicit": (dgp.Implicit(model), kwargs),
        "decoupled_500_100": (dgp.Decoupled(model, layers), kwargs),
        "mean_field_200": (dgp.MeanField(model), kwargs | {"z": tuple(more)}),
    }


def measure(model: Any, guide: Any, x: Any, y: Any, kwargs: dict[str, Any], steps: int) -> Any:
    """Median seconds of `SVI.update`, and of a step of `fit`."""
    svi = SVI(model, guide, optax.adam(1e-2), guide.default_loss)
    state = svi.init(random.key(1), x, y, **kwargs)
    update = jax.jit(lambda state, x, y: svi.update(state, x, y, **kwargs))
    first = timed(lambda: update(state, x, y))
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        state, _ = jax.block_until_ready(update(state, x, y))
        times.append(time.perf_counter() - begun)
    run = partial(dgp.fit, random.key(2), model, guide, x, y, progress=False, **kwargs)
    run(steps=1)
    short, long = (timed_fit(partial(run, steps=n)) for n in (20, 20 + steps))
    return float(np.median(times)), (long - short) / steps, first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="a2,c2,c3", help="comma-separated")
    parser.add_argument("--guides", help="comma-separated; all by default")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows = []
    for shape in args.shapes.split(","):
        model, x, y, kwargs = problem(shape, random.key(0))
        baseline = None
        for name, (guide, options) in guides(model, x, kwargs).items():
            if args.guides and name not in ("mean_field", *args.guides.split(",")):
                continue
            update, fit, first = measure(model, guide, x, y, options, args.steps)
            baseline = baseline or (update, fit)
            rows.append(
                {"shape": shape, "guide": name, "update_ms": 1e3 * update, "fit_ms": 1e3 * fit,
                 "first_call_s": first, "update_ratio": update / baseline[0],
                 "fit_ratio": fit / baseline[1]}
            )  # fmt: skip
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in rows[-1].items()})
    if args.json:
        device = jax.devices()[0]
        record = {
            "device": f"{device.platform} {device.device_kind}",
            "versions": {"python": platform.python_version(), "jax": jax.__version__},
            "date": datetime.date.today().isoformat(),
            "rows": rows,
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
