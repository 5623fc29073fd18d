"""Measure how many targets 90 % intervals hold if the model and its hyperparameters are true.

A data set is a draw of `deep_gp` at fixed hyperparameters: 100 training and 200 held-out rows of
two inputs, M = 20. `MeanField` is fitted with the hyperparameters fixed at the truth, so what is
missing from 90 % is the posterior's approximation, or a fit that has not converged: compare numbers
of steps. `gain` is what the second half of the steps added to the ELBO of a row, in nats; some of
it comes from the falling learning rate. The exact posterior holds 90 %.

Sets are fitted ten at a time in one program. Stop at any time: finished batches stay in the record,
and a later call goes on.

    python benchmarks/calibration_at_truth.py --json benchmarks/results/calibration-at-truth.json \
        [--sets 100] [--steps 3000] [--depths 1,2,3] [--variance 1] [--until 21:40]
"""

import argparse
import datetime
import json
import platform
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro import handlers

import dgp_ppl as dgp
from dgp_ppl import initialize
from dgp_ppl.models import deep_gp

ROWS, HELD_OUT, INDUCING, BATCH, LEVEL = 100, 200, 20, 10, 0.9


@cache
def truth(depth: int, variance: float) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return a model without params, its guide, inputs, and the model's keyword arguments."""
    x = random.uniform(random.key(0), (ROWS + HELD_OUT, 2), minval=-1.7, maxval=1.7)
    given = initialize.deep_gp(random.key(1), x, num_inducing=INDUCING, depth=depth)
    kwargs = {n: a for n, a in given.items() if n != "batch_size"}
    trace = handlers.trace(handlers.seed(deep_gp, random.key(2))).get_trace(x, **kwargs)
    params = {n: s["value"] for n, s in trace.items() if s["type"] == "param"}
    changed = {n: jnp.ones_like(a) for n, a in params.items() if n.endswith(".variance")}
    changed |= {n: variance * a for n, a in changed.items() if n != f"l{depth}.variance"}
    model = dgp.freeze(deep_gp, params | changed | {"noise": jnp.array(0.2)})
    return model, dgp.MeanField(model), x, kwargs


def batch(depth: int, number: int, steps: int, variance: float) -> dict[str, Any]:
    """Draw, fit and predict ten data sets."""
    model, guide, x, kwargs = truth(depth, variance)
    keys = random.split(random.fold_in(random.key(3), 1000 * depth + number), 3)

    def drawn(key: Any) -> Any:
        with handlers.block():
            sites = handlers.trace(handlers.seed(model, key)).get_trace(x, **kwargs)
        return sites["y"]["value"]

    y = jax.jit(jax.vmap(drawn))(random.split(keys[0], BATCH))
    fits = dgp.fit_many(
        random.split(keys[1], BATCH), model, guide, x[:ROWS], y[:, :ROWS], each=("y",), steps=steps,
        progress=False, **kwargs,
    )  # fmt: skip
    coverage, log_density = [], []
    for fit, targets in zip(fits, np.asarray(y[:, ROWS:]), strict=True):
        p = dgp.predict(keys[2], model, guide, fit, x[ROWS:], num_samples=200, **kwargs)
        low, high = p.interval(LEVEL)
        coverage.append(float(np.mean((targets >= low) & (targets <= high))))
        log_density.append(float(jnp.mean(p.log_prob(targets))))
    elbos = np.asarray(fits.elbo_per_datum)
    parts = [
        elbos[:, part].mean(axis=1)
        for part in (slice(steps // 2 - 50, steps // 2), slice(-50, None))
    ]
    return {
        "depth": depth, "variance": variance, "batch": number, "steps": steps,
        "coverage90": coverage, "log_density": log_density,
        "gain": (parts[1] - parts[0]).round(4).tolist(),
        "date": datetime.date.today().isoformat(), "dgp_ppl": dgp.__version__,
        "commit": dgp.comparison.versions().get("commit"), "jax": jax.__version__,
        "python": platform.python_version(), "device": jax.devices()[0].device_kind,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100, help="of each depth")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--depths", default="1,2,3")
    parser.add_argument("--variance", type=float, default=1.0, help="of hidden layers")
    parser.add_argument("--until", default="", help="begin no batch after this time of day, HH:MM")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    rows = json.loads(args.json.read_text()) if args.json.exists() else []
    names = ("depth", "variance", "steps", "batch")
    known = {tuple(r[n] for n in names) for r in rows}
    for number in range(-(-args.sets // BATCH)):
        for depth in map(int, args.depths.split(",")):
            now = datetime.datetime.now().strftime("%H:%M")
            setting = (depth, args.variance, args.steps)
            if (*setting, number) in known or (args.until and now >= args.until):
                continue
            rows.append(batch(depth, number, args.steps, args.variance))
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
            found = [r for r in rows if tuple(r[n] for n in names[:3]) == setting]
            held = np.concatenate([r["coverage90"] for r in found])
            error = held.std(ddof=1) / np.sqrt(len(held))
            gain = np.mean(np.concatenate([r["gain"] for r in found]))
            print(
                f"depth {depth}, {len(held)} sets: {held.mean():.3f} +- {error:.3f} of the targets "
                f"in 90 % intervals; gain of the second half {gain:.4f} nats a row", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
