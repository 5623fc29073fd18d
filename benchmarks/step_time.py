"""Time one DSVI gradient step, and compare its rate with a plain matmul's in the same run.

A step draws a minibatch, computes the gradient of the bound and updates with Adam, through the
public API: ``SVI.update`` under `jax.jit` (``update``), and a compiled chunk of the steps of
`dgp_ppl.fit` (``fit``). Both repeat until the 95 % interval of the median is within 5 % of it, or
for a minute; the row then says what it is. A step counts as
3 sum_l [K (2 M B D + 2 M² D + M³/3 + M² B) + P (2 M² B + 2 M B)] floating-point operations, where
a layer has P outputs and K kernels. The outputs of hidden layers share one kernel in the shapes a
to d, and have their own in o. The script divides its rate by the rate of a 2048³ float32 matmul,
measured before and after each shape. It also times ``import dgp_ppl``.

    python benchmarks/step_time.py [--shapes a2,b2] [--steps 20] [--json FILE]
"""

import argparse
import dataclasses
import datetime
import json
import math
import platform
import subprocess
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from jax import random
from numpyro.infer import SVI, TraceMeanField_ELBO

import dgp_ppl as dgp
from dgp_ppl import inference, models

# name: (M, B, D, width, depth, likelihood, rows)
SHAPES: dict[str, tuple[int, int, int, int, int, str, int]] = {
    **{f"a{L}": (100, 1000, 8, 8, L, "normal", 8192) for L in (1, 2, 3, 4, 5)},
    **{f"b{L}": (128, 1024, 28, 28, L, "bernoulli", 50_000) for L in (2, 3)},
    **{f"c{L}": (100, 1000, 784, 30, L, "classes", 10_000) for L in (2, 3)},
    "d2": (500, 4096, 8, 8, 2, "normal", 50_000),
    **{f"o{L}": (100, 1000, 8, 8, L, "normal", 8192) for L in (2, 3, 5)},
}
SPREAD, FEWEST, SECONDS = 0.05, 10, 60.0  # of the median; least repeats; most seconds
CLASSES = 10
OUT = {"normal": 1, "bernoulli": 1, "classes": CLASSES}
LIKELIHOOD: dict[str, Any] = {
    "normal": None,
    "bernoulli": dgp.BernoulliProbit,
    "classes": lambda f: dist.Categorical(logits=f),
}


def work(M: int, B: int, layers: list[tuple[int, int, int]]) -> float:
    """Count the floating-point operations of a step; `layers` are (inputs, outputs, kernels)."""
    return 3 * sum(
        K * (2 * M * B * D + 2 * M**2 * D + M**3 / 3 + M**2 * B) + P * (2 * M**2 * B + 2 * M * B)
        for D, P, K in layers
    )


def matmul_rate(size: int = 2048, repeats: int = 5) -> float:
    """Return the median floating-point operations per second of a float32 matmul."""
    a = jnp.ones((size, size), jnp.float32)
    product = jax.jit(partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST))
    product(a, a).block_until_ready()
    return 2 * size**3 / float(np.median([timed(lambda: product(a, a)) for _ in range(repeats)]))


def timed(call: Any) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begun


@dataclasses.dataclass
class Timing:
    """The median of repeated times, in seconds, and half the width of its interval over it."""

    median: float
    spread: float
    least: float
    repeats: int

    @property
    def note(self) -> str:
        """What to think of it, if the repeats did not agree."""
        return "" if self.spread <= SPREAD else f"not settled: within {100 * self.spread:.0f} %"


def repeated(call: Any) -> Timing:
    """Time a call until the median is known to 5 %, or a minute has passed."""
    times: list[float] = []
    begun = time.perf_counter()
    while True:
        times.append(timed(call))
        timing = Timing(float(np.median(times)), _spread(times), min(times), len(times))
        if len(times) >= FEWEST and timing.spread <= SPREAD:
            return timing
        if time.perf_counter() - begun > SECONDS:
            return timing


def _spread(times: list[float]) -> float:
    """Return half the width of the 95 % interval of the median, over the median.

    The interval lies between two of the sorted times, whatever their distribution.
    """
    n = len(times)
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    ordered = sorted(times)
    return (ordered[n - 1 - low] - ordered[low]) / (2 * float(np.median(times)))


def problem(name: str, key: jax.Array) -> tuple[Any, jax.Array, jax.Array, dict[str, Any]]:
    """Return the model, data and keyword arguments of a shape."""
    M, B, D, width, depth, kind, rows = SHAPES[name]
    x = random.normal(key, (rows, D))
    f = jnp.sin(x.sum(axis=1) / jnp.sqrt(D))
    y = {"normal": f, "bernoulli": (f > 0).astype(jnp.int32)}.get(
        kind, ((f + 1) / 2 * CLASSES).astype(jnp.int32) % CLASSES
    )
    z: list[Any] = [x[:M]]
    means: list[Any] = []
    for _ in range(depth - 1):
        same = z[-1].shape[1] == width
        means.append(dgp.means.identity if same else dgp.means.pca(x[:1000], width))
        z.append(means[-1](z[-1]))
    kwargs = {
        "z": tuple(z),
        "mean": (*means, dgp.means.zero),
        "out": OUT[kind],
        "likelihood": LIKELIHOOD[kind],
        "batch_size": B,
        "share_kernel": not name.startswith("o"),
    }
    return models.deep_gp, x, y, kwargs


def measure(name: str, steps: int) -> dict[str, Any]:
    M, B, D, width, depth, kind, _ = SHAPES[name]
    hidden = (width, width if name.startswith("o") else 1)
    layers = [
        (D if l == 0 else width, *(hidden if l < depth - 1 else (OUT[kind], 1)))
        for l in range(depth)
    ]
    flops = work(M, B, layers)
    function, x, y, kwargs = problem(name, random.key(0))
    model = partial(function, **kwargs)
    guide = dgp.MeanField(model)
    svi = SVI(model, guide, optax.adam(1e-2), TraceMeanField_ELBO())
    state = svi.init(random.key(1), x, y)
    update = jax.jit(lambda state, x, y: svi.update(state, x, y))
    first = timed(lambda: update(state, x, y))
    before = matmul_rate()
    updates = repeated(lambda: update(state, x, y))
    begun = time.perf_counter()
    fit = partial(dgp.fit, random.key(2), models.deep_gp, dgp.MeanField(models.deep_gp), x, y)
    optimizer = optax.adam(1e-2)
    result = fit(steps=1, optimizer=optimizer, progress=False, **kwargs)
    fit_first = time.perf_counter() - begun
    run, start, data = inference.fit_program(
        random.key(2), models.deep_gp, dgp.MeanField(models.deep_gp), x, y, num=steps,
        optimizer=optimizer, **kwargs,
    )  # fmt: skip
    chunk: Any = jax.jit(run).lower(start, data).compile()
    chunks = repeated(lambda: chunk(start, data))
    after = matmul_rate()
    rate = (before + after) / 2
    losses = np.asarray(chunk(start, data)[1])[:steps]
    assert np.isfinite(losses).all()
    assert np.isfinite(result.losses).all()
    update_s, fit_s = updates.median, chunks.median / steps
    return {
        "shape": name,
        "update_ms": 1e3 * update_s,
        "update_min_ms": 1e3 * updates.least,
        "update_spread": updates.spread,
        "fit_ms": 1e3 * fit_s,
        "fit_min_ms": 1e3 * chunks.least / steps,
        "fit_spread": chunks.spread,
        "repeats": [updates.repeats, chunks.repeats],
        "note": "; ".join(
            f"{n} {t.note}" for n, t in (("update", updates), ("fit", chunks)) if t.note
        ),
        "first_call_s": first,
        "fit_first_s": fit_first,
        "mflop": flops / 1e6,
        "matmul_gflops": rate / 1e9,
        "update_fraction": flops / update_s / rate,
        "fit_fraction": flops / fit_s / rate,
    }


def import_time(repeats: int = 5) -> float:
    """Return the median seconds that ``import dgp_ppl`` takes in a fresh process."""
    code = "from time import perf_counter as t; a = t(); import dgp_ppl; print(t() - a)"
    runs = [subprocess.check_output([sys.executable, "-c", code]) for _ in range(repeats)]
    return float(np.median([float(r) for r in runs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="comma-separated")
    parser.add_argument("--steps", type=int, default=20, help="steps of a chunk")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    head = ("shape", "update ms", "fit ms", "first s", "fit first s", "MFLOP", "matmul GF/s")
    seconds = import_time()
    print(f"import dgp_ppl: {seconds:.2f} s")
    print("".join(f"{h:>13}" for h in (*head, "update frac", "fit frac")))
    rows = []
    for name in args.shapes.split(","):
        row = measure(name, args.steps)
        rows.append(row)
        keys = ("update_ms", "fit_ms", "first_call_s", "fit_first_s", "mflop", "matmul_gflops")
        cells = [f"{row[k]:13.2f}" for k in (*keys, "update_fraction", "fit_fraction")]
        print(f"{name:>13}" + "".join(cells), row["note"], flush=True)
    if args.json:
        device = jax.devices()[0]
        record = {
            "device": f"{device.platform} {device.device_kind}",
            "machine": platform.machine(),
            "versions": {"python": platform.python_version(), "jax": jax.__version__},
            "date": datetime.date.today().isoformat(),
            "import_s": seconds,
            "rows": rows,
        }
        with open(args.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
