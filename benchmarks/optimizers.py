"""Compare optimisers by the bound of a deep GP after the same number of steps.

All of them decay the learning rate by a cosine schedule to 3 %, on one split of one data set.

    DGP_PPL_DATA=... python benchmarks/optimizers.py [uci/energy] [--split 0] [--inducing 100] \
        [--steps 2000] [--json FILE]
"""

import argparse
import json
import platform
from typing import Any

import jax
import numpyro

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.inference import default_optimizer, evaluate

# Adam's b1 and b2, and the model's share of the learning rate: optax's defaults, then ours.
SETTINGS = (
    (0.9, 0.999, 1.0),
    (0.95, 0.99, 0.3),
    (0.95, 0.99, 0.5),
    (0.95, 0.99, 1.0),
    (0.9, 0.999, 0.3),
    (0.9, 0.99, 0.3),
)


HYPER = frozenset(
    ["noise", *(f"l{l}.{p}" for l in (1, 2) for p in ("z", "variance", "lengthscale"))]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="uci/energy")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--split-key", default="dsdgp_test_index")
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rates", default="0.03,0.1", help="comma-separated learning rates")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    data = dgp.datasets.load(args.data, split_key=args.split_key)
    train, _ = dgp.datasets.splits(data, args.split + 1, seed=0)[args.split]
    x_train, y_train = data.x[train], data.y[train]
    scale = dgp.Standardizer.fit(x_train, y_train)
    x, y = scale.inputs(x_train), scale.outputs(y_train)
    key = jax.random.key(0)
    kwargs = dgp.initialize.deep_gp(key, x, num_inducing=args.inducing, depth=2)
    kwargs["share_kernel"] = True  # the default when the results were recorded
    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    rows: list[dict[str, Any]] = []
    for rate in map(float, args.rates.split(",")):
        for b1, b2, share in SETTINGS:
            optimizer = default_optimizer(rate, args.steps, HYPER, b1=b1, b2=b2, share=share)
            options = {"steps": args.steps, "optimizer": optimizer, "progress": False}
            result = dgp.fit(key, model, guide, x, y, batch_size=1000, **options, **kwargs)
            elbo, error = evaluate(key, model, guide, result.params, x, y, **kwargs)
            row = {"learning_rate": rate, "b1": b1, "b2": b2, "model_share": share}
            rows.append(row | {"elbo_per_datum": elbo / len(y), "se": error / len(y)})
            print("  ".join(f"{k} {v:.4g}" for k, v in rows[-1].items()), flush=True)
    if args.json:
        about = {
            "data": f"{args.data}, split {args.split} of {args.split_key}",
            "inducing": args.inducing,
            "steps": args.steps,
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
            "python": platform.python_version(),
            "device": jax.devices()[0].device_kind,
        }
        with open(args.json, "w") as file:
            json.dump({**about, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
