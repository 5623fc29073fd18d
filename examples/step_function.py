"""Fit a step with one GP layer and with two.

One stationary layer has one lengthscale, so it rounds the step off and ripples beside it. Two
layers warp the input first. The plot shows the mean, the 90 % bands of y and draws of the function.

    python examples/step_function.py [--steps 3000] [--out step.png] [--smoke]
"""

import argparse
from typing import Any

import numpy as np
from jax import random

import dgp_ppl as dgp
from dgp_ppl import datasets, initialize, metrics, models, plots


def fit_and_predict(
    key: Any, data: datasets.Dataset, depth: int, steps: int, grid: np.ndarray
) -> tuple[dict[str, Any], float, float]:
    """Return curves on the grid, the ELBO per datum, and the error from the noiseless step."""
    key_init, key_fit, key_predict, key_draw = random.split(key, 4)
    standardizer = dgp.Standardizer.fit(data.x, data.y)
    x, y = standardizer.inputs(data.x), standardizer.outputs(data.y)

    start = initialize.deep_gp(key_init, x, num_inducing=25, depth=depth)
    guide = dgp.MeanField(models.deep_gp)
    result = dgp.fit(
        key_fit, models.deep_gp, guide, x, y, steps=steps, progress=f"{depth} layers", **start
    )

    p = dgp.predict(
        key_predict, models.deep_gp, guide, result.params, grid,
        standardizer=standardizer, **start,
    )  # fmt: skip
    lower, upper = p.interval(0.9)
    draws = p.function_draws(key_draw, 8)
    curves = {"mean": p.mean, "lower": lower, "upper": upper, "draws": draws}
    elbo = float(result.elbo_per_datum[-steps // 10 :].mean())
    return curves, elbo, metrics.rmse((grid[:, 0] > 0).astype(float), p.mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="step.png")
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    steps = 5 if args.smoke else args.steps

    data = datasets.load("step")
    grid = np.linspace(-1.2, 1.2, 40 if args.smoke else 300)[:, None]
    bands = {}
    for depth in (1, 2):
        name = f"{depth} layer" + "s" * (depth > 1)
        bands[name], elbo, error = fit_and_predict(random.key(args.seed), data, depth, steps, grid)
        print(f"{name}: ELBO per datum {elbo:.3f}, RMSE against the step {error:.4f}")
    figure = plots.function_bands(data.x[:, 0], data.y, grid[:, 0], bands)
    figure.savefig(args.out, dpi=150)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
