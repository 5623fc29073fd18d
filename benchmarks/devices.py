"""Measure what it costs to divide the rows of a fit among devices, and what the devices exchange.

Each row is a process with so many simulated CPU devices. They share the same cores, so the time of
a step shows the overhead of dividing, and no gain; CPU time is less disturbed by other work on the
machine. 0 devices is a fit without a mesh. The exchanges are those of the compiled program, which
XLA dumps. From them the script estimates their time on 8 GPUs in a ring: each sends a sum's bytes
2 (P - 1) / P times, at 300 GB/s and with 10 us for each exchange, both assumed. Minibatches of
1,024 rows divide the data, so each device draws from its own; those of 1,000 rows do not.

    python benchmarks/devices.py [--shapes a2,o2] [--devices 0,1,2] [--batch 1000] [--json FILE]
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import optax
from step_time import SHAPES, problem

import dgp_ppl as dgp

BANDWIDTH, LATENCY, GPUS = 300e9, 10e-6, 8  # bytes per second, seconds
REPEATS = 5  # pairs of a short and a long fit
SHORT = 20  # steps
BYTES = {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "pred": 1}
KINDS = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute"


def exchanges(folder: Path) -> list[dict[str, Any]]:
    """Return the exchanges between devices in the dumped program of a fit's steps."""
    found = []
    for path in folder.glob("*run_chunk*after_optimizations.txt"):
        for line in path.read_text().splitlines():
            match = re.search(rf"= (.*?) ({KINDS})(?:-start)?\(", line)
            if match is None:
                continue
            arrays = re.findall(r"([a-z]+\d+)\[([\d,]*)\]", match[1])
            sizes = [BYTES[t] * math.prod(int(n) for n in s.split(",") if n) for t, s in arrays]
            what = "minibatch" if "/gather" in line else "gradients and loss"
            found.append({"kind": match[2], "of": what, "arrays": len(sizes), "bytes": sum(sizes)})
    return found


def measure(shape: str, devices: int, steps: int, batch: int) -> dict[str, Any]:
    """Time the steps of a fit in this process; the compilation is in none of the times."""
    model, x, y, options = problem(shape, jax.random.key(0))
    options["batch_size"] = batch
    fit = partial(
        dgp.fit, jax.random.key(2), model, dgp.MeanField(model), x, y, progress=False,
        optimizer=optax.adam(1e-2), mesh="auto" if devices else None, **options,
    )  # fmt: skip
    result = fit(steps=SHORT)
    wall, cpu = [], []
    for _ in range(REPEATS):
        marks = [(time.perf_counter(), time.process_time())]
        for num in (SHORT, SHORT + steps):
            fit(steps=num)
            marks.append((time.perf_counter(), time.process_time()))
        (w0, c0), (w1, c1), (w2, c2) = marks
        wall.append((w2 - w1 - (w1 - w0)) / steps)
        cpu.append((c2 - c1 - (c1 - c0)) / steps)
    return {
        "shape": shape, "devices": devices, "batch": batch, "first_loss": float(result.losses[0]),
        "last_loss": float(result.losses[-1]), "step_ms": 1e3 * statistics.median(wall),
        "step_cpu_ms": 1e3 * statistics.median(cpu),
        "param_bytes": sum(4 * a.size for a in jax.tree.leaves(result.params)),
    }  # fmt: skip


def run(shape: str, devices: int, steps: int, batch: int) -> dict[str, Any]:
    """Measure in a process with so many devices; returns its row with the exchanges of a step."""
    with tempfile.TemporaryDirectory() as folder:
        flags = (
            f"--xla_force_host_platform_device_count={max(1, devices)} --xla_dump_to={folder} "
            "--xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*run_chunk.*"
        )
        # A program that comes from a cache is not dumped.
        environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_COMPILATION_CACHE": "0"}
        words = [sys.executable, __file__, "--one", shape, str(devices)]
        words += ["--steps", str(steps), "--batch", str(batch)]
        row = json.loads(subprocess.check_output(words, env=environment, text=True))
        found = exchanges(Path(folder))
    sums = sum(e["bytes"] for e in found)
    seconds = LATENCY * len(found) + 2 * (GPUS - 1) / GPUS * sums / BANDWIDTH
    return row | {"exchanges": found, "bytes": sums, "estimated_us_8_gpus": 1e6 * seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="a2,o2", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--devices", default="0,1,2")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1024, help="rows of a minibatch, of 8,192")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], int(args.one[1]), args.steps, args.batch)))
        return
    rows = []
    for shape in args.shapes.split(","):
        for devices in map(int, args.devices.split(",")):
            rows.append(run(shape, devices, args.steps, args.batch))
            shown = {k: v for k, v in rows[-1].items() if k != "exchanges"}
            print(*(f"{k} {v:.6g}" if k != "shape" else v for k, v in shown.items()), flush=True)
            for found in rows[-1]["exchanges"]:
                print("   ", *(f"{k}: {v}" for k, v in found.items()), flush=True)
    if args.json:
        record = {
            "date": datetime.date.today().isoformat(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "versions": {"python": platform.python_version(), "jax": jax.__version__},
            "rows": rows,
        }
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
