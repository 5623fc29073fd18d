"""Time one DSVI gradient step, and compare its rate with a plain matmul's in the same run.

A step draws a minibatch, computes the gradient of the bound and updates with Adam, through the
public API: ``SVI.update`` under `jax.jit`, and `dgp_ppl.fit`. A step counts as
3 sum_l [K (2 M B D + 2 M² D + M³/3 + M² B) + P (2 M² B + 2 M B)] floating-point operations, where
a layer has P outputs and K kernels. The outputs of hidden layers share one kernel in the shapes a
to d, and have their own in o. The script divides its rate by the rate of a 2048³ float32 matmul,
measured before and after each shape. It also times ``import dgp_ppl``.

    python benchmarks/step_time.py [--shapes a2,b2] [--steps 60] [--json FILE]
"""

import argparse
import datetime
import json
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
from dgp_ppl import models

# name: (M, B, D, width, depth, likelihood, rows)
SHAPES: dict[str, tuple[int, int, int, int, int, str, int]] = {
    **{f"a{L}": (100, 1000, 8, 8, L, "normal", 8192) for L in (1, 2, 3, 4, 5)},
    **{f"b{L}": (128, 1024, 28, 28, L, "bernoulli", 50_000) for L in (2, 3)},
    **{f"c{L}": (100, 1000, 784, 30, L, "classes", 10_000) for L in (2, 3)},
    "d2": (500, 4096, 8, 8, 2, "normal", 50_000),
    **{f"o{L}": (100, 1000, 8, 8, L, "normal", 8192) for L in (2, 3, 5)},
}
REPEATS = 5  # pairs of a short and a long fit
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
    times, loss = [], jnp.inf
    for _ in range(steps):
        begun = time.perf_counter()
        state, loss = jax.block_until_ready(update(state, x, y))
        times.append(time.perf_counter() - begun)
    fit = partial(dgp.fit, random.key(2), models.deep_gp, dgp.MeanField(models.deep_gp), x, y)
    optimizer = optax.adam(1e-2)
    begun = time.perf_counter()
    result = fit(steps=1, optimizer=optimizer, progress=False, **kwargs)
    fit_first = time.perf_counter() - begun
    # The difference of a long and a short fit removes costs that do not grow with the steps. Its
    # median over pairs is robust to other work on the machine.
    short, long = (
        partial(fit, steps=n, optimizer=optimizer, progress=False, **kwargs)
        for n in (20, 20 + steps)
    )
    pairs = [timed_fit(long) - timed_fit(short) for _ in range(REPEATS)]
    after = matmul_rate()
    rate = (before + after) / 2
    assert np.isfinite(loss)
    assert np.isfinite(result.losses).all()
    update_s, fit_s = float(np.median(times)), float(np.median(pairs)) / steps
    return {
        "shape": name,
        "update_ms": 1e3 * update_s,
        "update_min_ms": 1e3 * min(times),
        "fit_ms": 1e3 * fit_s,
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


def timed_fit(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="comma-separated")
    parser.add_argument("--steps", type=int, default=60)
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
        print(f"{name:>13}" + "".join(cells), flush=True)
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
