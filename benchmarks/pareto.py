"""Compare bounds and held-out densities of fits by their CPU seconds.

For each data set, split, seed and number of steps: a deep GP of two layers and 100 inducing inputs
in minibatches of 1,000 rows, from two starts as in `compare`. "natural" moves q(v) of the last
layer by natural gradients, `fit`'s default; "adam" moves all params by Adam, the default before. A
run goes on where its file ends. Keep all programs on one core (`taskset -c 0`).

    DGP_PPL_DATA=... python benchmarks/pareto.py [--data energy,concrete] [--splits 0,1,2] \
        [--seeds 0,1] [--steps 375,750,1500,3000,6000] [--json benchmarks/results/pareto.json] \
        [--picture docs/images/pareto.png]
"""

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import random

import dgp_ppl as dgp
from dgp_ppl.comparison import Setting, versions, write_json
from dgp_ppl.comparison._builders import build
from dgp_ppl.comparison._fit_method import prepared
from dgp_ppl.comparison._method import Task
from dgp_ppl.comparison.methods._guides import _starts
from dgp_ppl.inference import default_optimizer, evaluate

COMPILING: list[float] = []  # seconds of XLA's compiler


def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    """Keep the seconds of each compilation."""
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILING.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(listen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="energy,concrete,boston,wine_red,kin8nm,power")
    parser.add_argument("--splits", default="0")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--steps", default="375,750,1500,3000,6000")
    parser.add_argument("--optimizers", default="natural,adam")
    parser.add_argument("--json", default="benchmarks/results/pareto.json")
    parser.add_argument("--picture", help="draw what the file has")
    args = parser.parse_args()
    path = Path(args.json)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    lists = (getattr(args, n).split(",") for n in ("data", "splits", "seeds", "steps"))
    for name, split, seed, steps in itertools.product(*lists):
        for optimizer in args.optimizers.split(","):
            about = {
                "data": name, "split": int(split), "seed": int(seed), "steps": int(steps),
                "optimizer": optimizer,
            }  # fmt: skip
            if any(about.items() <= row.items() for row in rows):
                continue
            rows.append(about | fit_and_measure(**about) | {"versions": versions()})
            print({n: a for n, a in rows[-1].items() if n != "versions"}, flush=True)
            write_json(path, {"rows": rows})
    if args.picture:
        draw(rows, args.picture)


def fit_and_measure(
    data: str, split: int, seed: int, steps: int, optimizer: str
) -> dict[str, float]:
    """Fit one deep GP, and return its bound, its scores and its seconds."""
    found = dgp.datasets.load(f"uci/{data}", split_key="test_index")
    train, test = dgp.datasets.splits(found, split + 1, seed=0)[split]
    x, y, setting = found.x[train], found.y[train], Setting(steps=steps)
    scale, (task,) = prepared(x, y, setting, seed=seed, split=split)
    COMPILING.clear()
    begin = time.process_time()
    model, guide, kwargs, result = fit(task, optimizer)
    seconds, compiling = time.process_time() - begin, sum(COMPILING)
    elbo, _ = evaluate(
        random.key(1), model, guide, result.params, task.x, task.y, batch_size=10_000, **kwargs
    )
    prediction = dgp.predict(
        random.key(2), model, guide, result.params, found.x[test], standardizer=scale, **kwargs
    )
    y_test = found.y[test]
    return {
        "elbo_per_datum": elbo / len(y),
        "log_density": float(np.mean(prediction.log_prob(y_test))),
        "rmse": float(np.sqrt(np.mean((prediction.mean - y_test) ** 2))),
        "seconds": seconds,
        "seconds_of_compilation": compiling,
    }


def fit(task: Task, optimizer: str) -> Any:
    """Fit a task; returns the model, the guide, the model's arguments and the result."""
    task_model, task_fit = task.split()
    built = build(task_model)
    guide = dgp.MeanField(built.model)
    slow = frozenset(
        ["noise", *(f"l{i}.{p}" for i in (1, 2) for p in ("z", "variance", "lengthscale"))]
    )
    adam = default_optimizer(0.1, task.steps, slow) if optimizer == "adam" else None
    result = dgp.fit(
        random.split(task_fit.key)[0], built.model, guide, task.x, task.y, steps=task.steps,
        batch_size=1000, optimizer=adam, start=_starts(task_model, built), progress=False,
        **built.kwargs,
    )  # fmt: skip
    return built.model, guide, built.kwargs, result


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the means of bound and log density over splits and seeds against the seconds."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in rows))
    scores = {"elbo_per_datum": "ELBO per datum", "log_density": "log density"}
    figure, axes = plt.subplots(
        len(scores), len(names), figsize=(2.6 * len(names), 4.4), layout="constrained", sharex=True
    )
    for column, name in enumerate(names):
        for line, (score, label) in enumerate(scores.items()):
            axis = axes.reshape(len(scores), -1)[line, column]
            for optimizer, marker in (("natural", "o"), ("adam", "s")):
                own = [r for r in rows if (r["data"], r["optimizer"]) == (name, optimizer)]
                points = []
                for steps in sorted({r["steps"] for r in own}):
                    each = [r for r in own if r["steps"] == steps]
                    points.append(np.mean([[r["seconds"], r[score]] for r in each], axis=0))
                if points:
                    axis.plot(*np.transpose(points), f"{marker}-", ms=4, label=optimizer)
            axis.set(xscale="log", title=name if line == 0 else "")
            axis.set_xlabel("CPU seconds" if line == len(scores) - 1 else "")
            axis.set_ylabel(label if column == 0 else "")
    axes.flat[0].legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
