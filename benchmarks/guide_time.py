"""Time of one gradient step of every guide and of SGHMC, as a multiple of MeanField's.

Steps of ``SVI.update`` under `jax.jit`, one a call (``update``) and many in a compiled loop, as
`dgp_ppl.fit` runs them (``loop``); minibatch and Adam included, at two of step_time.py's shapes: a
(D = width = 8) and c (MNIST's: 784 inputs, widths 30, 10 classes), both with M = 100 and B = 1000.
Guides take turns, so that a machine whose speed changes is fair to all.

On Linux a call whose temporary memory (in the rows) is above 32 MiB gets fresh pages from the C
library each time, which costs more than what the guides differ by; without that:

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
        "sghmc": (dgp.SGHMC(model), kwargs),
        "mean_field_200": (dgp.MeanField(model), kwargs | {"z": tuple(more)}),
    }


class Timed:
    """Steps of one guide or sampler, compiled: one a call, and in a loop."""

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

    def go_on(self, steps: int) -> None:
        """As many steps more of either kind."""
        for _ in range(steps):
            begun = time.perf_counter()
            self.state = jax.block_until_ready(self.update(self.state, *self.data))
            self.update_times.append(time.perf_counter() - begun)
        self.loop_times.append(timed(lambda: self.loop(self.state, steps, *self.data)) / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="a2,c2,c3", help="comma-separated")
    parser.add_argument("--guides", help="comma-separated; all by default")
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=5, help="each goes through all guides")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows = []
    for shape in args.shapes.split(","):
        model, x, y, kwargs = problem(shape, random.key(0))
        every = guides(model, x, kwargs)
        wanted = args.guides.split(",") if args.guides else list(every)
        chosen = {n: every[n] for n in every if n == "mean_field" or n in wanted}
        runs = {n: Timed(model, guide, x, y, own) for n, (guide, own) in chosen.items()}
        for _ in range(args.rounds):
            for run in runs.values():
                run.go_on(args.steps)
        base = runs["mean_field"]
        for name, run in runs.items():
            row = {"shape": shape, "guide": name, "first_call_s": run.first}
            row |= {"update_memory_mib": run.memory}
            for kind in ("update", "loop"):
                own, baseline = (float(np.median(getattr(r, f"{kind}_times"))) for r in (run, base))
                row |= {f"{kind}_ms": 1e3 * own, f"{kind}_ratio": own / baseline}
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
