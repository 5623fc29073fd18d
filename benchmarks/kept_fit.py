"""Measure files of fits: sizes, and the times to save, load and export them and to predict.

The fit has two layers with M = 100 inducing inputs, D = 8 inputs and 8 hidden outputs, each with
its own kernel. Times are medians of repeated calls; first calls, which compile, are separate. The
differences are to `predict` at single rows; `predict` itself differs between one row and two. With
`--near` the fit has a rough process of 10,000 and of 100,000 rows instead: CPU seconds of the mean
and variance of new rows, and the peak of memory after its steps, which have minibatches of 1,000.

    python benchmarks/kept_fit.py [--near] [--json FILE]
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.comparison import versions, write_json

ROWS = 1000


def seconds(
    call: Callable[[], Any], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Return the time of the first call, and the median of the others."""
    times = []
    for _ in range(repeats):
        begun = clock()
        jax.block_until_ready(call())
        times.append(clock() - begun)
    return times[0], statistics.median(times[1:])


def read(path: Path) -> tuple[dict[str, Any], Any]:
    with zipfile.ZipFile(path) as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        return json.loads(file.read("dgp_ppl.json")), program


def measure(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(ROWS, 8)) * 3 + 20
    target = 100 * np.sin(raw[:, 0]) + 50
    scale = dgp.Standardizer.fit(raw, target)
    x, y = scale.inputs(raw), scale.outputs(target)
    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    layers = initialize.deep_gp(jax.random.key(0), x, num_inducing=100, depth=2)
    fit = dgp.fit(jax.random.key(1), model, guide, x, y, steps=500, progress=False, **layers)
    kept, exported = folder / "fit.dgp", folder / "fit.jaxprogram"
    key, options = jax.random.key(2), {"standardizer": scale, **layers}

    def predict(rows: Any) -> dgp.Prediction:
        return dgp.predict(key, model, guide, fit.params, rows, **options)

    save = seconds(lambda: dgp.save(kept, model, guide, fit, **options))
    load = seconds(lambda: dgp.load(kept))
    export = seconds(lambda: dgp.export(exported, predict(raw[:1])), 2)
    deserialize = seconds(lambda: read(exported)[1].out_tree.num_leaves)
    program = jax.jit(read(exported)[1].call)
    rows = raw.astype("float32")
    size = read(exported)[0]["inputs"][0]["shape"][0]
    blocks = [np.resize(rows[i : i + size], (size, 8)) for i in range(0, ROWS, size)]
    of_program = seconds(lambda: [program(block) for block in blocks])
    of_predict = seconds(lambda: _values(predict(raw)))
    found = {n: np.asarray(a, np.float64) for n, a in program(blocks[0]).items()}
    single = [_values(predict(raw[i : i + 1])) for i in range(20)]
    twice = [predict(raw[[i, i]]).mean[0] for i in range(20)]
    sd = scale.y_scale
    return {
        "params": sum(np.size(a) for a in fit.params.values()),
        "bytes": {"fit": kept.stat().st_size, "program": exported.stat().st_size},
        "seconds": {
            "save": save[1],
            "load": load[1],
            "export": export[0],
            "deserialize": deserialize[1],
            "program, first call": of_program[0],
            "program, 1000 rows": of_program[1],
            "predict, first call": of_predict[0],
            "predict, 1000 rows": of_predict[1],
        },
        "largest difference, in sd of y": {
            "mean of predict, one row or two": max(
                abs(t - s[0]).item() for t, s in zip(twice, single, strict=True)
            )
            / sd,
            "mean": max(abs(found["mean"][i] - s[0]).item() for i, s in enumerate(single)) / sd,
            "sd": max(abs(found["var"][i] ** 0.5 - s[1]).item() for i, s in enumerate(single)) / sd,
            "quantiles": max(
                np.abs(found["quantiles"][i] - s[2][:, 0]).max() for i, s in enumerate(single)
            )
            / sd,
        },
    }


def measure_near(num: int) -> dict[str, Any]:
    rng, model = np.random.default_rng(0), models.deep_gp
    x = rng.normal(size=(num, 8)).astype(np.float32)
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=num).astype(np.float32)
    layers: Any = initialize.deep_gp(jax.random.key(0), x[:5000], num_inducing=100, depth=2)
    layers["local"], guide = dgp.NearRows(x, y), dgp.MeanField(model)
    options: Any = {"steps": 50, "batch_size": 1000, "progress": False, **layers}
    fit = dgp.fit(jax.random.key(1), model, guide, x, y, **options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def predict(rows: int) -> tuple[float, float]:
        def call() -> Any:
            new = rng.normal(size=(rows, 8)).astype(np.float32)
            p = dgp.predict(jax.random.key(2), model, guide, fit, new, **layers)
            return p.mean, p.var

        return seconds(call, clock=time.process_time)

    named = zip(("first call", "median"), predict(1), strict=True)
    cpu = {f"one row, {n}": a for n, a in named} | {"1,000 rows": predict(1000)[1]}
    return {"rows": num, "CPU seconds": cpu, "peak, MB": peak / 1024}


def _values(p: dgp.Prediction) -> tuple[Any, Any, Any]:
    return p.mean[0], np.sqrt(p.var[0]), p.quantile(np.array([0.05, 0.5, 0.95]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the record to this file")
    parser.add_argument("--near", action="store_true", help="measure near rows instead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        near: Any = {"near": [measure_near(num) for num in (10_000, 100_000)]} if args.near else {}
        record = near or measure(Path(folder))
    print(json.dumps(record, indent=1))
    if args.json:
        write_json(args.json, {"versions": versions(), **record})


if __name__ == "__main__":
    main()
