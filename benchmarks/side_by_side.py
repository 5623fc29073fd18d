"""Time fits side by side, a core each, against the same fits one after another with all cores.

Both are `dgp_ppl.compare` of deep GPs on the bundled robot arm: one split a core, with `workers`
processes or in this one. They take turns, each in a new process whose time includes its start but
not compilation: an earlier process has filled a cache of programs.

    python benchmarks/side_by_side.py [--steps 3000] [--rounds 3] [--json FILE]
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

import dgp_ppl as dgp
from dgp_ppl.comparison import local_workers

MODES = ("one_after_another", "side_by_side")


def fit(mode: str, steps: int, num: int) -> None:
    """Compare on `num` splits."""
    executor = local_workers(num) if mode == "side_by_side" else None
    dgp.compare("robot_arm", ["dsvi"], splits=num, steps=steps, executor=executor, progress=False)


def seconds(mode: str, steps: int, cache: str) -> float:
    """Return the seconds of a new process."""
    options = {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    }
    command = [sys.executable, __file__, "--mode", mode, "--steps", str(steps)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | options)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the record to this file")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    num = len(os.sched_getaffinity(0))
    if args.mode:
        fit(args.mode, args.steps, num)
        return
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as cache:
        for mode in MODES:
            seconds(mode, 20, cache)
        for _ in range(args.rounds):
            for mode in MODES:
                times[mode].append(seconds(mode, args.steps, cache))
    ratios = [a / b for a, b in zip(times["side_by_side"], times["one_after_another"], strict=True)]
    record = {
        "cores": num, "fits": num, "steps": args.steps, "seconds": times,
        "ratio": statistics.median(ratios), "date": datetime.date.today().isoformat(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__},
        "machine": platform.machine(),
    }  # fmt: skip
    print(json.dumps(record))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
