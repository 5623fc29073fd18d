"""Time many fits in one program against one of them alone.

On a GPU one fit leaves most of the device idle, and 20 fits in one program should take little more
than one. On a CPU they take about as long as one after the other. The first call of each compiles;
the times are those of the second.

    python benchmarks/many_fits.py [--fits 20] [--steps 6000] [--shape a2] [--json FILE]
"""

import argparse
import datetime
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import random
from step_time import problem

import dgp_ppl as dgp


def second_call(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call after one that compiled, and its result."""
    call()
    begun = time.perf_counter()
    result = call()
    return time.perf_counter() - begun, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="a2", help="of step_time.py")
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--json", type=Path, help="write the record to this file")
    args = parser.parse_args()
    model, x, y, options = problem(args.shape, random.key(0))
    guide = dgp.MeanField(model)
    options |= {"steps": args.steps, "progress": False}
    keys = random.split(random.key(2), args.fits)
    one_s, one = second_call(lambda: dgp.fit(keys[0], model, guide, x, y, **options))
    many_s, many = second_call(lambda: dgp.fit_many(keys, model, guide, x, y, **options))
    record = {
        "device": str(jax.devices()[0].device_kind),
        "machine": platform.machine(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__},
        "date": datetime.date.today().isoformat(),
        "shape": args.shape, "fits": args.fits, "steps": args.steps,
        "one_fit_s": one_s, "many_fits_s": many_s, "ratio_to_one": many_s / one_s,
        "last_bounds": [float(one.elbo_per_datum[-1]), float(many[0].elbo_per_datum[-1])],
    }  # fmt: skip
    assert np.isfinite(many.elbo_per_datum).all()
    print(json.dumps(record))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
