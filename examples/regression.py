"""Fit a table: standardise, fit, predict in the units of the data, and save for ArviZ.

    python examples/regression.py [--data diabetes] [--target COLUMN] [--steps 3000] [--smoke]

DATA is a name that `dgp-ppl datasets` lists, or a .csv, .npz or .parquet file.
"""

import argparse

from jax import random

import dgp_ppl as dgp
from dgp_ppl import datasets, initialize, metrics, models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="diabetes")
    parser.add_argument("--target", help="column to predict, for files with columns")
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="regression.nc", help="ArviZ file to write")
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    steps, inducing = (5, 5) if args.smoke else (args.steps, 100)
    key_init, key_fit, key_test, key_draw = random.split(random.key(args.seed), 4)

    data = datasets.load(args.data, target=args.target)
    train, test = datasets.splits(data, 1, args.seed)[0]
    # Statistics of the training rows only; they travel with the fit.
    standardizer = dgp.Standardizer.fit(data.x[train], data.y[train])
    x, y = standardizer.inputs(data.x[train]), standardizer.outputs(data.y[train])

    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    start = initialize.deep_gp(key_init, x, num_inducing=inducing, depth=args.depth)
    result = dgp.fit(key_fit, model, guide, x, y, steps=steps, batch_size=1000, **start)
    print(f"ELBO per datum {result.elbo_per_datum[-steps // 10 :].mean():.3f}")

    options = {"standardizer": standardizer, **start}
    p = dgp.predict(key_test, model, guide, result.params, data.x[test], **options)
    lower, upper = p.interval(0.9)
    print(f"RMSE             {metrics.rmse(data.y[test], p.mean):.4g}")
    print(f"mean log density {metrics.mean_log_density(p.log_prob(data.y[test])):.4g}")
    print(f"CRPS             {p.crps(data.y[test]).mean():.4g}")
    print(f"90 % coverage    {metrics.interval_coverage(data.y[test], lower, upper):.2f}")

    tree = dgp.to_inferencedata(
        key_draw, model, guide, result.params, data.x[train], data.y[train],
        test=(data.x[test], data.y[test]), result=result, **options,
    )  # fmt: skip
    tree.to_netcdf(args.out, engine="h5netcdf")
    print(f"wrote {args.out}: groups {', '.join(tree.children)}")


if __name__ == "__main__":
    main()
