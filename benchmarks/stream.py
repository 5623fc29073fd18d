"""Compare fits of rows that are read from disk with fits of arrays in memory.

The data are like trips of taxis: 8 float32 inputs and a fare, sorted by time, in .npy files (and in
a folder of Parquet files for up to 10 million rows). For each number of rows the script times fits
from disk and fits of a million rows in memory in turn, and reports the ratio of their step times.
The operating system is asked to drop the files from its memory before each fit. A process of its
own measures the peak memory of reading the moments, the start and a fit. The model has one layer of
100 inducing inputs, and minibatches have 1,000 rows: the cheapest step of step_time.py, which
leaves the least time to read.

A step's time is the difference of a long and a short fit, divided by their steps. Beside wall-clock
time the script reports the processor time of all threads, which other work on the machine does not
disturb much: of a step from disk it includes reading.

    python benchmarks/stream.py [--rows 1000000,10000000] [--folder DIR] [--json FILE]
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pyarrow as pa
import pyarrow.parquet as pq
from jax import random

import dgp_ppl as dgp
from dgp_ppl import initialize, models

COLUMNS = ("hour", "day", "x0", "y0", "x1", "y1", "miles", "minutes")
IN_MEMORY = 1_000_000  # rows
BATCH = 1000
SHORT, LONG = 200, 1200  # steps
REPEATS = 7  # pairs of fits in memory and from disk
BLOCK = 1_000_000  # rows that are generated at once
MOST_PARQUET = 10_000_000
KEY = random.key(0)
OPTIMIZER = optax.adam(1e-2)
GUIDE = dgp.MeanField(models.svgp)


def trips(rng: np.random.Generator, start: int, rows: int, total: int) -> Any:
    """Generate rows in the order of their time."""
    time_of = (start + np.arange(rows)) / total * 365
    places = rng.normal(size=(rows, 4))
    miles = np.hypot(places[:, 0] - places[:, 2], places[:, 1] - places[:, 3]) + 0.2
    minutes = miles * (3 + np.sin(time_of * 2 * np.pi)) * np.exp(0.2 * rng.normal(size=rows))
    x = np.column_stack([time_of % 1 * 24, time_of, places, miles, minutes])
    fare = 2.5 + 2 * miles + 0.4 * minutes + 0.01 * time_of + rng.normal(size=rows)
    return x.astype(np.float32), fare.astype(np.float32)


def generate(folder: Path, total: int) -> None:
    """Write x.npy and y.npy, and a folder of Parquet files."""
    rng = np.random.default_rng(total)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (total, len(COLUMNS)))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (total,))
    (folder / "trips").mkdir()
    for start in range(0, total, BLOCK):
        rows = min(BLOCK, total - start)
        inputs, fare = trips(rng, start, rows, total)
        x[start : start + rows], y[start : start + rows] = inputs, fare
        if total <= MOST_PARQUET:
            table = pa.table(dict(zip(COLUMNS, inputs.T, strict=True)) | {"fare": fare})
            pq.write_table(table, folder / "trips" / f"{start}.parquet", row_group_size=100_000)
    x.flush()
    y.flush()


def evict(folder: Path) -> None:
    """Ask the operating system to read the files from the disk again."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def source(folder: Path, kind: str) -> dgp.Rows:
    if kind == "parquet":
        return dgp.Rows.from_parquet(folder / "trips", target="fare")
    return dgp.Rows.from_arrays(*(np.load(folder / f"{n}.npy", mmap_mode="r") for n in "xy"))


def fit_seconds(steps: int, kwargs: dict[str, Any], *data: Any) -> np.ndarray:
    """Return the wall-clock and the processor time of a fit."""
    options = {"steps": steps, "optimizer": OPTIMIZER, "batch_size": BATCH, "progress": False}
    begun = np.array([time.perf_counter(), time.process_time()])
    dgp.fit(KEY, models.svgp, GUIDE, *data, **options, **kwargs)
    return np.array([time.perf_counter(), time.process_time()]) - begun


def peak(folder: Path, kind: str) -> dict[str, float]:
    """Measure one pass for the moments, the start, and the peak memory with a fit."""
    rows = source(folder, kind)
    begun = time.perf_counter()
    scale = dgp.Standardizer.fit(rows)
    moments = time.perf_counter() - begun
    rows = scale.rows(rows)
    begun = time.perf_counter()
    x, _ = rows.sample(KEY, 20_000)
    sample = time.perf_counter() - begun
    kwargs = {"z": initialize.inducing_inputs(KEY, x, 100)}
    fit_seconds(LONG, kwargs, rows)
    status = Path("/proc/self/status").read_text().splitlines()
    (high,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
    return {"moments_s": moments, "sample_s": sample, "peak_mb": int(high) / 1024}


def step_times(folder: Path, kind: str, repeats: int) -> dict[str, Any]:
    """Time fits from disk and in memory in turn."""
    rows = source(folder, kind)
    scale = dgp.Standardizer.fit(rows)
    x, y = rows.take(np.arange(min(IN_MEMORY, len(rows))))
    x, y = scale.inputs(x), scale.outputs(y)
    rows = scale.rows(rows)
    kwargs = {"z": initialize.inducing_inputs(KEY, rows, 100)}
    for data in ((x, y), (rows,)):  # compile
        for steps in (SHORT, LONG):
            fit_seconds(steps, kwargs, *data)
    times: dict[str, list[np.ndarray]] = {"memory": [], "disk": []}
    for _ in range(repeats):
        for name, data in (("memory", (x, y)), ("disk", (rows,))):
            spent = []
            for steps in (SHORT, LONG):
                evict(folder)
                spent.append(fit_seconds(steps, kwargs, *data))
            times[name].append(1e3 * (spent[1] - spent[0]) / (LONG - SHORT))
    memory, disk = (np.array(times[name]) for name in ("memory", "disk"))  # [repeats, 2]
    found: dict[str, Any] = {}
    for i, clock in enumerate(("wall", "cpu")):
        found[f"memory_{clock}_ms"] = statistics.median(memory[:, i])
        found[f"disk_{clock}_ms"] = statistics.median(disk[:, i])
        ratios = sorted(disk[:, i] / memory[:, i])
        found |= {f"{clock}_ratio": statistics.median(ratios), f"{clock}_ratios": ratios}
    return found


def measure(folder: Path, total: int, kind: str, repeats: int) -> dict[str, Any]:
    row: dict[str, Any] = {"rows": total, "kind": kind}
    for part in ("peak", "times"):
        evict(folder)
        words = [sys.executable, __file__, "--part", part, "--kind", kind, "--folder", str(folder)]
        words += ["--repeats", str(repeats)]
        row |= json.loads(subprocess.check_output(words).splitlines()[-1])
    return row


def at_a_billion(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Extrapolate what grows with N from the slope between the two largest sizes of .npy files."""
    small, large = sorted((r for r in rows if r["kind"] == "npy"), key=lambda r: r["rows"])[-2:]
    share = (1e9 - large["rows"]) / (large["rows"] - small["rows"])
    names = ("moments_s", "sample_s", "peak_mb", "disk_cpu_ms")
    return {n: large[n] + share * (large[n] - small[n]) for n in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1000000,10000000,100000000", help="comma-separated")
    parser.add_argument("--folder", help="folder for the data; by default a temporary one")
    parser.add_argument("--kinds", default="npy,parquet", help="comma-separated")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--part", choices=["peak", "times"], help=argparse.SUPPRESS)
    parser.add_argument("--kind", default="npy", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        folder = Path(args.folder)
        is_peak = args.part == "peak"
        row = peak(folder, args.kind) if is_peak else step_times(folder, args.kind, args.repeats)
        print(json.dumps(row))
        return
    rows = []
    for total in map(int, args.rows.split(",")):
        folder = Path(tempfile.mkdtemp(dir=args.folder))
        try:
            generate(folder, total)
            for kind in args.kinds.split(","):
                if kind == "parquet" and total > MOST_PARQUET:
                    continue
                rows.append(measure(folder, total, kind, args.repeats))
                print(json.dumps(rows[-1]), flush=True)
        finally:
            shutil.rmtree(folder)
    record: dict[str, Any] = {
        "command": "python benchmarks/stream.py " + " ".join(sys.argv[1:]),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__},
        "date": datetime.date.today().isoformat(),
        "rows": rows,
    }
    if sum(r["kind"] == "npy" for r in rows) > 1:
        record["at_1e9_rows"] = at_a_billion(rows)
        print(json.dumps(record["at_1e9_rows"]))
    if args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
