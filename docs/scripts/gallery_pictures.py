"""Draw the pictures of the gallery, docs/images/gallery: `python docs/scripts/gallery_pictures.py`.

    python docs/scripts/gallery_pictures.py [NAME ...] [--smoke]

A NAME names an example; all examples take some ten minutes on two cores. Examples that draw are
run as they are. Of examples that print a table this draws what their model found.
"""

import argparse
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray
from jax import random
from matplotlib.figure import Figure
from numpyro import handlers
from PIL import Image

import dgp_ppl as dgp
from dgp_ppl import plots

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images" / "gallery"
BLUE, ORANGE = "#0072B2", "#D55E00"


def example(name: str) -> dict[str, Any]:
    """What an example's file defines."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def run(name: str, *options: str) -> None:
    """Run an example as a program."""
    sys.argv = [name, *options]
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


def save(source: Figure | Path, name: str) -> None:
    """Write a picture with 128 colours, which is enough for lines and a third of the bytes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.png"
    if isinstance(source, Figure):
        source.savefig(path, dpi=110)
        source = path
    image = Image.open(source).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print("wrote", path.relative_to(ROOT), flush=True)


def band(axis: Any, x: Any, p: Any, title: str) -> None:
    """The mean and the 90 % band of a prediction along one input."""
    lower, upper = p.interval(0.9)
    axis.fill_between(x, lower, upper, color=BLUE, alpha=0.25, lw=0)
    axis.plot(x, p.mean, color=BLUE, lw=1.5)
    axis.set_title(title, fontsize=10)


def step_function(folder: Path, smoke: list[str]) -> None:
    """One layer and two on a step."""
    run("step_function", "--out", str(folder / "step.png"), *smoke)
    save(folder / "step.png", "step_function")


def svi_vs_mcmc(folder: Path, smoke: list[str]) -> None:
    """The functions that four methods find."""
    run("svi_vs_mcmc", "--out", str(folder), *smoke)
    save(folder / "functions.png", "svi_vs_mcmc")


def gallery(folder: Path, smoke: list[str]) -> None:
    """A picture of every kind."""
    run("gallery", "--out", str(folder), *smoke)
    for path in sorted(folder.glob("*.png")):
        save(path, f"gallery-{path.stem}")


def regression(folder: Path, smoke: list[str]) -> None:
    """Predictions of the held-out patients, from the example's ArviZ file."""
    run("regression", "--out", str(folder / "fit.nc"), *smoke)
    with xarray.open_datatree(folder / "fit.nc", engine="h5netcdf") as tree:
        draws = np.asarray(tree["predictions"]["y"])
    data = dgp.datasets.load("diabetes")
    y = data.y[dgp.datasets.splits(data, 1, 0)[0][1]]
    draws = draws.reshape(-1, draws.shape[-1])
    ends = np.quantile(draws, [0.05, 0.95], axis=0)
    found = {"two layers, DSVI": (draws.mean(axis=0), *ends)}
    title = "diabetes: held-out patients"
    save(plots.predicted_against_observed(y, found, "progression", title), "regression")


def counts_and_priors(folder: Path, smoke: list[str]) -> None:
    """The rate behind the counts."""
    names = example("counts_and_priors")
    x, exposure, counts, rate = names["simulate"](200, 0)
    z = np.linspace(-1, 1, 15)[:, None]
    lifted = handlers.lift(names["model"], prior=names["PRIORS"])
    guide, steps = dgp.MeanField(lifted), 5 if smoke else 3000
    fit = dgp.fit(random.key(1), lifted, guide, x, exposure, counts, z=z, steps=steps)
    p = dgp.predict(random.key(2), lifted, guide, fit.params, x, np.ones(len(x)), z=z)
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.plot(x[:, 0], counts / exposure, ".", color="0.5", label="counts per unit of exposure")
    axis.plot(x[:, 0], rate, color=ORANGE, label="true rate")
    band(axis, x[:, 0], p, "Counts in one unit of time: mean and 90 % band")
    axis.set(xlabel="x", ylabel="events")
    axis.legend(fontsize=8)
    save(figure, "counts_and_priors")


def likelihoods(folder: Path, smoke: list[str]) -> None:
    """Data of each kind, and the prediction that its likelihood makes of them."""
    names = example("likelihoods")
    rng, rows = np.random.default_rng(0), 200
    x, exposure = rng.uniform(-2, 2, (rows, 1)), rng.uniform(1, 5, rows)
    grid, ones = names["GRID"], names["ONE"]
    kinds = [k for k in names["KINDS"] if k.__name__ not in ("mixed", "two_outputs")]
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    for axis, make in zip(panels, kinds, strict=False):
        simulate = names["KINDS"][make]
        y = simulate(np.sin(3 * x[:, 0]), rng.standard_normal(rows), rng, exposure)
        kwargs = {"make": make, "out": names["OUTPUTS"].get(make, 1)}
        guide = dgp.MeanField(names["model"])
        steps = 5 if smoke else 2000
        data = (x, exposure, y)
        fit = dgp.fit(
            random.key(0), names["model"], guide, *data, steps=steps, learning_rate=0.03, **kwargs
        )
        p = dgp.predict(random.key(1), names["model"], guide, fit.params, grid, ones, **kwargs)
        counted = "oisson" in make.__name__ or "binomial" in make.__name__
        axis.plot(x[:, 0], y / exposure if counted else y, ".", color="0.6", ms=3)
        band(axis, grid[:, 0], p, make.__name__.replace("_", " "))
        if make.__name__ == "student_t":
            axis.set_ylim(-3, 3)
    panels[-1].axis("off")
    save(figure, "likelihoods")


def every_posterior(folder: Path, smoke: list[str]) -> None:
    """The prediction of each posterior, on the same data."""
    names = example("every_posterior")
    x, y = names["step"](random.key(0), 20 if smoke else 80)
    z = jnp.linspace(-2, 2, 10)[:, None]
    grid = np.linspace(-2.2, 2.2, 150)
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
    steps = 4 if smoke else 3000
    for axis, (name, guide, result) in zip(
        panels, names["posteriors"](z, x, y, steps), strict=False
    ):
        p = dgp.predict(random.key(4), names["model"], guide, result.params, grid[:, None], z=z)
        axis.plot(x[:, 0], y, ".", color="0.6", ms=4)
        elbo = float(result.elbo_per_datum[-max(steps // 10, 1) :].mean())
        band(axis, grid, p, f"{name}, ELBO {elbo:.3f} per datum")
    panels[-1].axis("off")
    save(figure, "every_posterior")


PICTURES: dict[str, Callable[[Path, list[str]], None]] = {
    f.__name__: f
    for f in (
        step_function, regression, counts_and_priors, likelihoods, every_posterior, svi_vs_mcmc,
        gallery,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], help="all by default")
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    for name in args.names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            PICTURES[name](Path(folder), ["--smoke"] if args.smoke else [])


if __name__ == "__main__":
    main()
