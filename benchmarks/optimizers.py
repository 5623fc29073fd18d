"""Compare variants of the default optimiser by the bound of deep GPs after the same steps.

For each data set and variant all splits and seeds are one program, which pays on a GPU: two layers,
100 inducing inputs, minibatches of 1,000 rows, one start. A run goes on where its file ends.

    DGP_PPL_DATA=... python benchmarks/optimizers.py [--data energy,concrete,kin8nm] \
        [--variants default,adam,...] [--splits 3] [--seeds 2] [--steps 1500] \
        [--json benchmarks/results/optimizers.json]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.infer import TraceMeanField_ELBO

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.comparison import versions, write_json
from dgp_ppl.inference import default_optimizer, evaluate

NATURAL = frozenset(["l2.v.loc", "l2.v.scale_tril"])
HYPER = frozenset(
    ["noise", *(f"l{l}.{p}" for l in (1, 2) for p in ("z", "variance", "lengthscale"))]
)
CALM = {"natural": NATURAL, "step_size": 0.5, "hyper_factor": 2.0, "hold": 0.5}
# Keywords of `default_optimizer`, "rate", and "draws" of the ELBO; none are the default.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "adam": {"natural": frozenset()},
    "half the hyperparameters' rate": {**CALM, "hyper_factor": 1.0},
    "no hold": {**CALM, "hold": 0.0},
    "half the rate": {**CALM, "rate": 0.05},
    "twice the rate": {**CALM, "rate": 0.2},
    "longer memory": {**CALM, "b1": 0.98, "b2": 0.995},
    "small natural steps": {**CALM, "step_size": 0.2},
    "four draws": {"draws": 4},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="energy,concrete,kin8nm")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--json", default="benchmarks/results/optimizers.json")
    args = parser.parse_args()
    path = Path(args.json)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for data in args.data.split(","):
        for variant in args.variants.split(","):
            row = {"data": data, "variant": variant, "steps": args.steps}
            if not any(row.items() <= known.items() for known in rows):
                row |= bounds(data, variant, args.splits, args.seeds, args.steps)
                print(row, flush=True)
                device = jax.devices()[0].device_kind
                rows.append(row | {"device": device, "versions": versions()})
                write_json(path, {"rows": rows})


def bounds(data: str, variant: str, splits: int, seeds: int, steps: int) -> dict[str, Any]:
    """Return the mean bound per datum, and the bounds split by split and seed by seed."""
    found = dgp.datasets.load(f"uci/{data}", split_key="test_index")
    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    xs, ys, layouts, keys = [], [], [], []
    for train, _ in dgp.datasets.splits(found, splits, seed=0):
        scale = dgp.Standardizer.fit(found.x[train], found.y[train])
        for seed in range(seeds):
            xs.append(scale.inputs(found.x[train]))
            ys.append(scale.outputs(found.y[train]))
            keys.append(random.key(seed))
            layouts.append(dgp.initialize.deep_gp(keys[-1], xs[-1], num_inducing=100, depth=2))
    arrays = [jax.tree.map(lambda a: None if callable(a) else a, layout) for layout in layouts]
    stacked: Any = jax.tree.map(lambda *a: jnp.stack(a), *arrays)
    is_none = lambda a: a is None  # noqa: E731
    shared = jax.tree.map(
        lambda a, own: own if a is None else a, stacked, layouts[0], is_leaf=is_none
    )
    each = ["x", "y", *(n for n, a in stacked.items() if jax.tree.leaves(a))]
    options = dict(VARIANTS[variant])
    draws, rate = options.pop("draws", 1), options.pop("rate", 0.1)
    fits = dgp.fit_many(
        jnp.stack(keys), model, guide, np.stack(xs), np.stack(ys), each=each, steps=steps,
        batch_size=1000, progress=False, loss=TraceMeanField_ELBO(draws) if draws > 1 else None,
        optimizer=default_optimizer(rate, steps, HYPER, **options) if options else None, **shared,
    )  # fmt: skip
    values = []
    for i, (x, y, layout) in enumerate(zip(xs, ys, layouts, strict=True)):
        bound, _ = evaluate(
            keys[i], model, guide, fits[i].params, x, y, batch_size=10_000, **layout
        )
        values.append(round(bound / len(x), 4))
    return {"mean": round(float(np.mean(values)), 4), "bounds": values, "seconds": fits.seconds}


if __name__ == "__main__":
    main()
