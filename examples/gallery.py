"""Draw a picture of every kind that `dgp_ppl.plots` makes, as PNG files.

python examples/gallery.py [--out gallery] [--smoke]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.infer import NUTS
from sklearn.datasets import make_moons

import dgp_ppl as dgp
from dgp_ppl import datasets, initialize, likelihoods, models, plots


def one_input(steps: int, draws: int) -> Iterator[tuple[str, Any]]:
    """Draw the layers of a deep GP on a step, and its posterior by three guides and NUTS."""
    data, keys = datasets.load("step"), random.split(random.key(0), 6)
    scale = dgp.Standardizer.fit(data.x, data.y)
    x, y = scale.inputs(data.x[::2]), scale.outputs(data.y[::2])
    z = jnp.linspace(-1.8, 1.8, 8)[:, None]
    options: dict[str, Any] = {"z": (z, z)}
    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    first = dgp.fit(keys[0], model, guide, x, y, steps=steps, progress=False, **options)
    grid, names = jnp.linspace(-2.2, 2.2, 100)[:, None], ["x, standardised"]
    functions = dgp.layer_functions(keys[1], model, guide, first.params, grid, **options)
    yield "layers_1d", plots.layers(functions, names, "A step: the function of each layer")
    yield "hidden_1d", plots.hidden_maps(functions, names, "A step: each layer as a function of x")

    # All posteriors belong to one model: hold the hyperparameters of the first fit.
    fixed = dgp.freeze(model, {n: a for n, a in first.params.items() if ".v." not in n})
    guides = {
        "mean field": dgp.MeanField(fixed),
        "diagonal": dgp.MeanField(fixed, covariance="diagonal"),
        "diffusion": dgp.Diffusion(fixed, steps=12, base="prior", informed=(x, y)),
    }
    fits = {
        n: dgp.fit(keys[2], fixed, guide, x, y, steps=steps, progress=False, **options)
        for n, guide in guides.items()
    }
    curves = {n: fit.elbo_per_datum for n, fit in fits.items()}
    yield "training", plots.training_curves(curves, "A step: the bound of three posteriors")
    params = {n: fit.params for n, fit in fits.items()}
    kernel = NUTS(dgp.transported(fixed, guides["mean field"], params["mean field"]))
    sizes = {"num_warmup": draws, "num_samples": draws, "num_chains": 2, "progress": False}
    exact: Any = dgp.run_mcmc(keys[3], kernel, x, y, **sizes, **options).samples
    options["num_paths"] = 2 * draws
    fitted = guides["diffusion"], params["diffusion"]
    states = dgp.diffusion_paths(keys[5], *fitted, x, y, **options)
    yield "paths", plots.diffusion_paths(states, exact=exact, title="Paths of a diffusion guide")


def two_inputs(steps: int, size: int) -> Iterator[tuple[str, Any]]:
    """Draw the layers and hidden maps of a deep GP for two classes."""
    points, classes = (np.asarray(a) for a in make_moons(200, noise=0.25, random_state=0))
    x, keys = dgp.Standardizer.fit(points).inputs(points), random.split(random.key(1), 3)
    model, guide = models.deep_gp, dgp.MeanField(models.deep_gp)
    options: dict[str, Any] = initialize.deep_gp(keys[0], x, num_inducing=20, depth=2)
    options |= {"likelihood": likelihoods.bernoulli_probit}
    fit = dgp.fit(keys[1], model, guide, x, classes, steps=steps, progress=False, **options)
    side, names = np.linspace(-2.2, 2.2, size), ["first input", "second input"]
    lattice = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    functions = dgp.layer_functions(keys[2], model, guide, fit, lattice, **options)
    yield "layers_2d", plots.layers(functions, names, "Two moons: the function of each layer")
    yield "hidden_2d", plots.hidden_maps(functions, names, "Two moons: layers over the inputs")


def comparison(steps: int) -> Iterator[tuple[str, Any]]:
    """Draw the predictions of a small comparison."""
    small: dict[str, Any] = {"steps": steps, "inducing": 20, "splits": 1, "progress": False}
    runs = dgp.compare("diabetes", ("linear", "dsvi"), **small).fits
    tests = {name: run.test for name, run in runs.items()}
    bands = {n: (p.mean, *p.interval(0.9)) for n, p in tests.items()}
    y, title = runs["dsvi"].y_test, "diabetes: held-out patients"
    yield "predictions", plots.predicted_against_observed(y, bands, "progression", title)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gallery"), help="folder of the PNGs")
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    steps, draws, size = (3, 5, 4) if args.smoke else (1500, 400, 21)
    for pictures in (one_input(steps, draws), two_inputs(steps, size), comparison(steps)):
        for name, figure in pictures:
            figure.savefig(args.out / f"{name}.png", dpi=110)
            print(f"wrote {args.out / name}.png", flush=True)


if __name__ == "__main__":
    main()
