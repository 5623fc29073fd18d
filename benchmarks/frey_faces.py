"""Recover missing pixels of the Frey faces with a deep GPLVM.

This is the task of Titsias & Lawrence (2010). The model learns from 1,000 random images of 28 x 20
pixels. Each of the other 965 images misses a random half of its pixels. Their latent inputs start
at those of the training image that is nearest in the observed pixels, and are fitted with
everything else fixed. The script prints the RMSE of the missing pixels in grey levels (0 to 255),
and their negative mean log predictive density in nats, both in grey levels and in units of the
standard deviation.

    DGP_PPL_DATA=... python benchmarks/frey_faces.py [--dim 30] [--depth 1] [--inducing 300] \
        [--missing random50|random75|lower] [--seeds 1] [--json FILE] [--picture FILE]
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.comparison import versions, write_json

SHAPE = (28, 20)
TRAINING = 1000


def missing(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return a mask that is True where a pixel was observed, [rows, 560]."""
    if kind == "lower":
        return np.broadcast_to(np.arange(560) < 280, (rows, 560))
    share = {"random50": 0.5, "random75": 0.75}[kind]
    order = rng.random((rows, 560)).argsort(axis=1)
    return order >= round(560 * share)


def densities(prediction: dgp.Prediction, y: np.ndarray) -> np.ndarray:
    """Return the marginal log density of each entry of y, [N, P]."""
    found = []
    for rows, mixture in prediction.components():
        pixels: Any = mixture.components  # one normal for each pixel
        pixels = pixels.base_dist
        loc, scale = (
            np.asarray(a)[:, 0, : rows.stop - rows.start] for a in (pixels.loc, pixels.scale)
        )
        terms = norm.logpdf(y[rows], loc, np.broadcast_to(scale, loc.shape))
        found.append(logsumexp(terms, axis=0) - np.log(len(terms)))
    return np.concatenate(found)


def run(seed: int, args: argparse.Namespace, faces: np.ndarray) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(faces))
    train, test = faces[order[:TRAINING]], faces[order[TRAINING:]]
    seen = missing(args.missing, len(test), rng)
    mean = train.mean(axis=0)
    scale = (train - mean).std()
    y, y_test = ((a - mean) / scale for a in (train, test))
    key_start, key_fit, key_new, key_back = jax.random.split(jax.random.key(seed), 4)
    layout, start = initialize.gplvm(
        key_start, y, args.dim, num_inducing=args.inducing, depth=args.depth
    )
    model, options = models.gplvm, {"out": 560, **layout}
    guide = dgp.MeanField(model, covariance="shared")
    begun = time.perf_counter()
    fit = dgp.fit(
        key_fit, model, guide, None, jnp.asarray(y, float), start=start, steps=args.steps,
        learning_rate=args.learning_rate, batch_size=args.batch, **options,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    nearest = initialize.nearest_rows(y_test, seen, y)
    given = jnp.asarray(np.where(seen, y_test, 0.0), float)
    found = dgp.infer_latent(
        key_new, model, guide, fit.params, None, given, jnp.asarray(seen),
        start=fit.params["latent_auto_loc"][nearest], steps=args.steps_new, **options,
    )  # fmt: skip
    back = found.reconstruct(key_back, num_samples=args.samples, chunk_size=100, **options)
    recovered, hidden = back.mean * scale + mean, ~seen
    nll = -densities(back, y_test)[hidden].mean()
    row = {
        "seed": seed,
        "rmse_grey_levels": float(np.sqrt(np.mean((recovered - test)[hidden] ** 2))),
        "nll_unit_variance": float(nll),
        "nll_grey_levels": float(nll + np.log(scale)),
        "rmse_nearest_image": float(np.sqrt(np.mean((train[nearest] - test)[hidden] ** 2))),
        "elbo_per_datum": float(fit.elbo_per_datum[-200:].mean()),
        "seconds_fit": seconds,
    }
    return row, (test, seen, recovered, np.sqrt(back.var) * scale)


def picture(images: Any, path: str) -> None:
    """Plot six test images: complete, with missing pixels, recovered, and the predictive sd."""
    import matplotlib
    from matplotlib.figure import Figure

    test, seen, recovered, sd = images
    chosen = np.linspace(0, len(test) - 1, 6).astype(int)
    rows = {
        "original": test,
        "given": np.where(seen, test, np.nan),
        "recovered": np.where(seen, test, recovered),
        "standard\ndeviation": np.where(seen, np.nan, sd),
    }
    figure = Figure(figsize=(6.5, 5.6), layout="constrained")
    axes = figure.subplots(len(rows), len(chosen))
    drawn: Any = None
    for line, (name, values) in zip(axes, rows.items(), strict=True):
        last = name.startswith("standard")
        ends = (np.nanmin(values[chosen]), np.nanmax(values[chosen])) if last else (0, 255)
        colours = matplotlib.colormaps["viridis" if last else "gray"].with_extremes(bad="#f3c9a5")
        for axis, image in zip(line, values[chosen], strict=True):
            drawn = axis.imshow(image.reshape(SHAPE), cmap=colours, vmin=ends[0], vmax=ends[1])
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(name)
    figure.colorbar(drawn, ax=axes[-1].tolist(), label="grey levels", fraction=0.05)
    figure.suptitle("Frey faces: new images, half of the pixels missing", fontsize=10)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--steps-new", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--missing", default="random50", choices=["random50", "random75", "lower"])
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--picture", help="write six of the first seed's images to this file")
    args = parser.parse_args()
    faces = np.load(Path(os.environ["DGP_PPL_DATA"], "frey_faces.npz"))["X"].astype(np.float64)
    rows = []
    for seed in range(args.seeds):
        row, images = run(seed, args, faces)
        rows.append(row)
        print(row)
        if args.picture and seed == 0:
            picture(images, args.picture)
    if args.json:
        config = {n: v for n, v in vars(args).items() if n not in ("json", "picture")}
        write_json(args.json, {"config": config, "versions": versions(), "rows": rows})


if __name__ == "__main__":
    main()
