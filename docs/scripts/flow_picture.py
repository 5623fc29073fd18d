"""Draw a differential GP that separates two classes: `python docs/scripts/flow_picture.py`.

Fits `models.diff_gp` to scikit-learn's two moons, and carries the points, and a lattice, along the
mean of the fitted field. Writes docs/images/flow.png.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from matplotlib.figure import Figure
from numpyro import handlers
from sklearn.datasets import make_moons

import dgp_ppl as dgp
from dgp_ppl import initialize, likelihoods, models

HORIZON = 5.0
COLOURS = ("#0072B2", "#D55E00")


def paths(fit: dgp.FitResult, guide: Any, x: Any, **options: Any) -> np.ndarray:
    """Where points are from t = 0 on, along the mean field, [steps + 1, N, 2]."""
    key_guide, key_model = random.split(random.key(1))
    drawn = handlers.trace(handlers.seed(handlers.substitute(guide, fit.params), key_guide))
    sites = drawn.get_trace(x, **options)
    model = handlers.replay(handlers.seed(models.diff_gp, key_model), sites)
    model = dgp.function_draws(handlers.substitute(model, fit.params), "mean")
    found = handlers.trace(model).get_trace(x, keep_path=True, **options)["flow.path"]["value"]
    return np.concatenate([np.asarray(x)[None], np.moveaxis(np.asarray(found), 1, 0)])


def main() -> None:
    moons: Any = make_moons(300, noise=0.12, random_state=0)
    points, classes = moons
    x = dgp.Standardizer.fit(points).inputs(points)
    keys = random.split(random.key(0), 2)
    z = initialize.inducing_inputs(keys[0], x, 40)
    options: dict[str, Any] = {
        "z": z, "z_flow": z, "horizon": HORIZON, "flow_steps": 20,
        "likelihood": likelihoods.bernoulli_probit,
    }  # fmt: skip
    guide = dgp.MeanField(models.diff_gp)
    fit = dgp.fit(keys[1], models.diff_gp, guide, x, jnp.asarray(classes), steps=1500, **options)

    fine, coarse = np.linspace(-2, 2, 81), np.linspace(-2, 2, 13)
    down = np.stack(np.meshgrid(coarse, fine, indexing="ij"), axis=-1)  # a line for each coarse
    across = np.stack(np.meshgrid(fine, coarse, indexing="ij"), axis=-1).swapaxes(0, 1)
    lines = np.concatenate([down, across])
    moved = paths(fit, guide, x, **options)
    lattice = paths(fit, guide, jnp.asarray(lines.reshape(-1, 2), float), **options)

    figure = Figure(figsize=(8.4, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for axis, step in zip(panels, (0, 10, 20), strict=True):
        for line in lattice[step].reshape(lines.shape):
            axis.plot(*line.T, color="0.8", lw=0.7, zorder=0)
        for c, marker in enumerate("os"):
            own = moved[step][classes == c]
            axis.scatter(*own.T, s=9, color=COLOURS[c], marker=marker, label=f"class {c}")
        axis.set_title(f"t = {HORIZON * step / 20:g}", fontsize=10)
        axis.set_xlabel("first input, standardised")
        axis.set(aspect="equal", xlim=(-2.4, 2.4), ylim=(-3.3, 3.3))
    panels[0].set_ylabel("second input, standardised")
    panels[0].legend(loc="upper right", fontsize=8)
    figure.savefig(Path(__file__).parents[1] / "images" / "flow.png", dpi=130)


if __name__ == "__main__":
    main()
