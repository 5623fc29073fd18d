"""The picture of the README, a step by one layer and by two: `python docs/scripts/step_picture.py`.

Writes docs/images/step.png.
"""

from pathlib import Path

import numpy as np
from jax import random

import dgp_ppl as dgp
from dgp_ppl import datasets, initialize, models, plots

SIZES = {"sparse GP (one layer)": 1, "deep GP (two layers)": 2}


def main() -> None:
    data = datasets.load("step")
    standardizer = dgp.Standardizer.fit(data.x, data.y)
    x, y = standardizer.inputs(data.x), standardizer.outputs(data.y)
    grid = np.linspace(-1.2, 1.2, 300)
    bands = {}
    for name, depth in SIZES.items():
        keys = random.split(random.key(0), 4)
        start = initialize.deep_gp(keys[0], x, num_inducing=25, depth=depth)
        guide = dgp.MeanField(models.deep_gp)
        result = dgp.fit(keys[1], models.deep_gp, guide, x, y, steps=3000, **start)
        p = dgp.predict(
            keys[2], models.deep_gp, guide, result.params, grid[:, None],
            standardizer=standardizer, **start,
        )  # fmt: skip
        lower, upper = p.interval(0.9)
        draws = p.function_draws(keys[3], 8)
        bands[name] = {"mean": p.mean, "lower": lower, "upper": upper, "draws": draws}
    figure = plots.function_bands(data.x[:, 0], data.y, grid, bands)
    figure.savefig(Path(__file__).parents[1] / "images" / "step.png", dpi=130)


if __name__ == "__main__":
    main()
