"""Compare bounds and held-out densities of fits by their CPU seconds.

For each data set, split, seed and number of steps: a deep GP of two layers and 100 inducing inputs
in minibatches of 1,000 rows, from two starts as in `compare`. "natural" moves q(v) of the last
layer by natural gradients, `fit`'s default; "adam" moves all params by Adam, the default before.
Changes of "natural": "muon" and "schedule-free" for hyperparameters and inducing inputs, "late
draws", four of the hidden layer in the last quarter, and "low noise", a third start at 0.01.
Methods of `compare` have seconds of the clock. A run goes on where its file ends. Keep all programs
on one core (`taskset -c 0`).

    DGP_PPL_DATA=... python benchmarks/pareto.py [--data energy,concrete] [--splits 0,1,2] \
        [--seeds 0,1] [--steps 375,750,1500,3000,6000] [--json benchmarks/results/pareto.json] \
        [--picture docs/images/pareto.png] [--peers benchmarks/results/pareto-gpytorch.jsonl
        benchmarks/results/one-layer.jsonl]

`--peers` adds to the picture what `tables/peers.py --split-key test_index` and `one_layer.py`
recorded.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax import random
from numpyro.infer import TraceMeanField_ELBO
from optimizers import CALM, HYPER, NATURAL

import dgp_ppl as dgp
from dgp_ppl.comparison import Fitted, Task, build, compare, register, versions, write_json
from dgp_ppl.inference import default_optimizer, evaluate

COMPILING: list[float] = []  # seconds of XLA's compiler
SECONDS: dict[str, float] = {}  # of the last fit


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
    parser.add_argument("--peers", type=Path, nargs="*", default=[], help="more, for the picture")
    args = parser.parse_args()
    path = Path(args.json)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    lists = (getattr(args, n).split(",") for n in ("data", "splits", "seeds", "steps"))
    for name, split, seed, steps in itertools.product(*lists):
        about = {"data": name, "split": int(split), "seed": int(seed), "steps": int(steps)}
        methods = [
            method
            for method in args.optimizers.split(",")
            if not any((about | {"optimizer": method}).items() <= row.items() for row in rows)
        ]

        def keep(row: dict[str, Any], about: dict[str, Any] = about) -> None:
            names = ("elbo_per_datum", "log_density", "rmse", "coverage90")
            scores = {n: row[n] for n in names}
            found = (
                about | {"optimizer": row["method"], "seconds": row["seconds"]} | scores | SECONDS
            )
            SECONDS.clear()  # methods of `compare` have those of the clock alone
            print(found, flush=True)
            rows.append(found | {"versions": versions()})
            write_json(path, {"rows": rows})

        if methods:
            compare(
                f"uci/{name}", methods, splits=[int(split)], seed=int(seed), steps=int(steps),
                split_key="test_index", progress=False, on_row=keep,
            )  # fmt: skip
    if args.picture:
        lines = (line for path in args.peers for line in path.read_text().splitlines())
        peers = [{"optimizer": "GPyTorch", **json.loads(a)} for a in lines]
        splits = [int(n) for n in args.splits.split(",")]
        draw([row for row in (*rows, *peers) if row["split"] in splits], args.picture)


def method(
    task: Task,
    optimizer: Any = None,
    *,
    low_noise: bool = False,
    late_draws: int = 0,
) -> Fitted:
    """Fit a mean field from its starts, and note the seconds."""
    task_model, task_fit = task.split()
    built = build(task_model)
    model, guide = built.model, dgp.MeanField(built.model)
    key_fit, key_elbo = random.split(task_fit.key)
    x = built.inducing[0][:1]
    shorter = dgp.initialize.shorter_lengthscales(model, x, factor=0.25, **built.kwargs)
    steps = task.steps - task.steps // 4 if late_draws else task.steps
    options: dict[str, Any] = {"batch_size": 1000, "progress": False, **built.kwargs}
    COMPILING.clear()
    begin = time.process_time()
    result = dgp.fit(
        key_fit, model, guide, *task.data, steps=steps, optimizer=optimizer,
        start=[{}, shorter, *([{**shorter, "noise": 0.01}] if low_noise else [])], **options,
    )  # fmt: skip
    if late_draws:
        result = dgp.fit(
            key_fit, model, guide, *task.data, steps=task.steps // 4, optimizer=optimizer,
            start=result, loss=TraceMeanField_ELBO(late_draws), **options,
        )  # fmt: skip
    SECONDS.update(seconds=time.process_time() - begin, of_compilation=sum(COMPILING))
    elbo, _ = evaluate(
        key_elbo, model, guide, result.params, *task.data, batch_size=10_000, **built.kwargs
    )
    return Fitted(model, guide, built.kwargs, result, elbo / task.num_data)


def default(task: Task, natural: bool = True) -> Any:
    """Make the default optimiser; with `natural` False, the one of before."""
    if not natural:
        return default_optimizer(0.1, task.steps, HYPER)
    options = CALM if task.num_data <= 1000 else {"natural": NATURAL}
    return default_optimizer(0.1, task.steps, HYPER, **options)


def with_other(task: Task, make: Callable[[Any], Any]) -> Any:
    """Make the default optimiser with another one for hyperparameters, of their schedule."""
    begin, rate, last = (task.steps // 2, 0.06, 0.0) if task.num_data <= 1000 else (0, 0.03, 0.03)
    decay = optax.cosine_decay_schedule(rate, task.steps - begin, last)
    schedule = optax.join_schedules([optax.constant_schedule(rate), decay], [begin])
    parts: Any = {"other": make(schedule), "default": default(task)}
    return optax.partition(
        parts, lambda params: {n: "other" if n in HYPER else "default" for n in params}
    )


@register("natural")
def natural(task: Task) -> Fitted:
    """Fit by the default optimiser."""
    return method(task)


@register("adam")
def adam(task: Task) -> Fitted:
    """Fit by Adam alone, hyperparameters at 0.3 of the rate."""
    return method(task, default(task, natural=False))


@register("muon")
def muon(task: Task) -> Fitted:
    """Fit with Muon for inducing inputs and lengthscales, whose updates have half of Adam's rms."""
    return method(task, with_other(task, lambda rate: optax.contrib.muon(
        rate, adam_b1=0.95, adam_b2=0.99, consistent_rms=0.5
    )))  # fmt: skip


@register("schedule-free")
def schedule_free(task: Task) -> Fitted:
    """Fit with schedule-free Adam for hyperparameters, at its point of gradients."""
    rate = 0.06 if task.num_data <= 1000 else 0.03
    return method(task, with_other(task, lambda _: optax.contrib.schedule_free_adamw(
        rate, warmup_steps=20, b1=0.95, b2=0.99
    )))  # fmt: skip


@register("late draws")
def late(task: Task) -> Fitted:
    """Fit with four draws in the last quarter."""
    return method(task, default(task), late_draws=4)


@register("low noise")
def low_noise(task: Task) -> Fitted:
    """Fit from a third start, of low noise."""
    return method(task, low_noise=True)


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the means of bound and log density over splits and seeds against the seconds."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in rows))
    scores = {"elbo_per_datum": "ELBO per datum", "log_density": "log density"}
    lines = 2 * -(-len(names) // 4)
    figure, axes = plt.subplots(
        lines, 4, figsize=(10, 2.2 * lines), layout="constrained", squeeze=False
    )
    for unused in axes.flat:
        unused.axis("off")
    for (i, name), (j, score) in itertools.product(enumerate(names), enumerate(scores)):
        axis = axes[2 * (i // 4) + j, i % 4]
        axis.axis("on")
        optimizers = dict.fromkeys(r["optimizer"] for r in rows)
        for k, (marker, optimizer) in enumerate(zip("os^vDP", optimizers, strict=False)):
            own = [r for r in rows if (r["data"], r["optimizer"]) == (name, optimizer)]
            points = []
            for steps in sorted({r["steps"] for r in own}):
                each = [r for r in own if r["steps"] == steps]
                points.append(np.mean([[r["seconds"], r[score]] for r in each], axis=0))
            if points:
                axis.plot(*np.transpose(points), f"C{k}{marker}-", ms=4, label=optimizer)
        axis.set(xscale="log", xlim=(3, 600), title="" if j else name)
        axis.set_xticks([10, 30, 100, 300], ["10", "30", "100", "300"] if j else [""] * 4)
        axis.minorticks_off()
        axis.set_ylabel("" if i % 4 else scores[score])
        axis.set_xlabel("CPU seconds" if j else "")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
