"""Fit implicit posteriors where the optimum is known: one layer, Gaussian noise, UCI energy.

The script fits `sgpr`, holds its hyperparameters, and fits `Implicit` guides to `svgp`. No q(v) can
then have a better bound than the collapsed one. For each guide the script prints the bound per
datum with the discriminator's estimate of the KL (reported), and the same with the upper bound on
the KL (certified).

    DGP_PPL_DATA=... python benchmarks/implicit_energy.py [uci/energy] [--inducing 50] \
        [--steps 3000] [--json FILE]
"""

import argparse
import json
import platform
from typing import Any

import jax
import numpyro
from numpyro import handlers

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.inference import (
    AdversarialELBO,
    Implicit,
    adversarial_optimizer,
    evaluate,
)

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "Gaussian generator": {"generator": None},
}


def no_guide(*args: Any, **kwargs: Any) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="uci/energy")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--split-key", default="dsdgp_test_index")
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--settings", default=";".join(SETTINGS), help="separated by ;")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    data = dgp.datasets.load(args.data, split_key=args.split_key)
    train, _ = dgp.datasets.splits(data, args.split + 1, seed=0)[args.split]
    scale = dgp.Standardizer.fit(data.x[train], data.y[train])
    x, y = scale.inputs(data.x[train]), scale.outputs(data.y[train])
    key = jax.random.key(0)
    z = dgp.initialize.deep_gp(key, x, num_inducing=args.inducing, depth=1)["z"][0]
    options = {"steps": args.steps, "progress": False}
    exact = dgp.fit(key, models.sgpr, no_guide, x, y, z=z, **options)
    best = -exact.losses[-1] / len(y)
    print(f"collapsed bound per datum {best:.4f}", flush=True)
    held = handlers.substitute(models.svgp, data=exact.params)
    model = handlers.block(held, hide_fn=lambda site: site["type"] == "param")
    rows = []
    for name in args.settings.split(";"):
        guide = Implicit(model, **SETTINGS[name])
        optimizer = adversarial_optimizer(args.learning_rate, args.steps)
        training = {"loss": AdversarialELBO(), "optimizer": optimizer}
        fitted = dgp.fit(key, model, guide, x, y, z=z, **options, **training)
        bound, _ = evaluate(key, model, guide, fitted.params, x, y, z=z, loss=AdversarialELBO())
        certified, _ = evaluate(key, model, guide, fitted.params, x, y, z=z)
        row = {
            "setting": name,
            "reported": bound / len(y),
            "certified": certified / len(y),
            "seconds": fitted.seconds,
        }
        print(
            "  ".join(f"{k} {v:.5g}" if k != "setting" else v for k, v in row.items()), flush=True
        )
        rows.append(row)
    if args.json:
        about = {
            "data": f"{args.data}, split {args.split} of {args.split_key}",
            "inducing": args.inducing,
            "steps": args.steps,
            "collapsed": best,
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
            "python": platform.python_version(),
            "device": jax.devices()[0].device_kind,
        }
        with open(args.json, "w") as file:
            json.dump({**about, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
