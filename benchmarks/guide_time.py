"""Time one gradient step of every guide and of SGHMC, as a multiple of MeanField's.

A step is ``SVI.update`` under `jax.jit`, with minibatch and Adam. The script times one step per
call (``update``) and many steps in a compiled loop, as `dgp_ppl.fit` runs them (``loop``). The
shapes are those of step_time.py: a (D = width = 8) and c (MNIST: 784 inputs, width 30, 10 classes),
both with M = 100 and B = 1000. The guides take turns, so a machine whose speed changes affects all
of them alike.

On Linux the C library returns fresh pages to every call whose temporary memory (in the rows)
exceeds 32 MiB. That costs more than the differences between guides. To avoid it:

    MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=2000000000 python benchmarks/...

    python benchmarks/guide_time.py [--shapes a2,c2] [--guides diffusion] [--json FILE]
"""

import argparse
import datetime
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax import lax, random
from numpyro.infer import SVI
from step_time import problem, timed

import dgp_ppl as dgp
from dgp_ppl import initialize

MEAN_POINTS = 500  # inducing inputs of Decoupled's mean; its covariance has the shape's 100
COUPLED_POINTS = 200  # inducing inputs of the MeanField that Decoupled should beat


def guides(model: Any, x: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return every guide by name, with the model's keyword arguments for it."""
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
        "sghmc": (dgp.SGHMC(model), kwargs),
        "mean_field_200": (dgp.MeanField(model), kwargs | {"z": tuple(more)}),
    }


class Timed:
    """Compiled steps of one guide or sampler: one per call, and in a loop."""

    def __init__(self, model: Any, guide: Any, x: Any, y: Any, kwargs: dict[str, Any]) -> None:
        self.data = x, y
        if isinstance(guide, dgp.SGHMC):
            self.state = guide.init(random.key(1), 10, None, self.data, kwargs)
            step = lambda state, x, y: guide.sample(state, (x, y), kwargs)  # noqa: E731
        else:
            svi = SVI(model, guide, optax.adam(1e-2), guide.default_loss)
            self.state = svi.init(random.key(1), x, y, **kwargs)
            step = lambda state, x, y: svi.update(state, x, y, **kwargs)[0]  # noqa: E731
        self.update = jax.jit(step)
        self.first = timed(lambda: self.update(self.state, x, y))
        compiled = self.update.lower(self.state, x, y).compile().memory_analysis()
        self.memory = compiled.temp_size_in_bytes / 2**20 if compiled else float("nan")

        def steps(state: Any, num: int, x: Any, y: Any) -> Any:
            return lax.fori_loop(0, num, lambda _, s: step(s, x, y), state)

        self.loop = jax.jit(steps)
        jax.block_until_ready(self.loop(self.state, 1, x, y))
        self.update_times: list[float] = []
        self.loop_times: list[float] = []

    def run(self, steps: int) -> None:
        """Time more steps of both kinds."""
        for _ in range(steps):
            begun = time.perf_counter()
            self.state = jax.block_until_ready(self.update(self.state, *self.data))
            self.update_times.append(time.perf_counter() - begun)
        self.loop_times.append(timed(lambda: self.loop(self.state, steps, *self.data)) / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="a2,c2,c3", help="comma-separated")
    parser.add_argument("--guides", help="comma-separated; all by default")
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=5, help="each goes through all guides")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows = []
    for shape in args.shapes.split(","):
        model, x, y, kwargs = problem(shape, random.key(0))
        every = guides(model, x, kwargs)
        wanted = args.guides.split(",") if args.guides else list(every)
        chosen = {n: every[n] for n in every if n == "mean_field" or n in wanted}
        runs = {n: Timed(model, guide, x, y, options) for n, (guide, options) in chosen.items()}
        for _ in range(args.rounds):
            for run in runs.values():
                run.run(args.steps)
        base = runs["mean_field"]
        for name, run in runs.items():
            row = {"shape": shape, "guide": name, "first_call_s": run.first}
            row |= {"update_memory_mib": run.memory}
            for kind in ("update", "loop"):
                this, other = (float(np.median(getattr(r, f"{kind}_times"))) for r in (run, base))
                row |= {f"{kind}_ms": 1e3 * this, f"{kind}_ratio": this / other}
            rows.append(row)
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
    if args.json:
        device = jax.devices()[0]
        record = {
            "device": f"{device.platform} {device.device_kind}",
            "versions": {"python": platform.python_version(), "jax": jax.__version__},
            "malloc": {n: v for n, v in os.environ.items() if n.startswith("MALLOC_")},
            "date": datetime.date.today().isoformat(),
            "rows": rows,
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
