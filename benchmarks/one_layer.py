"""Compare fits of one sparse GP by their CPU seconds: ours, and GPJax's natural gradients.

    DGP_PPL_DATA=... python benchmarks/one_layer.py [--data energy,concrete] [--split 0] \
        [--steps 100,1000] [--jsonl benchmarks/results/one-layer.jsonl]

One layer, 100 inducing inputs from the rows, all rows in each step, a squared exponential with a
lengthscale per input, noise 0.3 at first: `fit`, `minimize` from two starts, and GPJax's
`fit_natgrads` with natural steps of 1 and Adam with a rate of 0.1. (With 0.01, as in its example,
the bound of energy after 1,000 steps is 1.13, for 1.24.) Needs gpjax. A run goes on where its file
ends. Keep it on one core (`taskset -c 0`).
"""
# pyright: reportMissingImports=false

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import gpjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import random

import dgp_ppl as dgp
from dgp_ppl.comparison import versions
from dgp_ppl.models import optimal_inducing, sgpr, svgp

M, NOISE, RATE = 100, 0.3, 0.1
Scores = tuple[float, float, float]  # seconds, bound per row, log density of standardised targets


def natural(x: Any, y: Any, z: Any, x_test: Any, y_test: Any, steps: int) -> Scores:
    begin, guide = time.process_time(), dgp.MeanField(svgp)
    fit = dgp.fit(random.key(0), svgp, guide, x, y, z=z, steps=steps, noise=NOISE, progress=False)
    seconds = time.process_time() - begin
    found = dgp.predict(random.key(1), svgp, guide, fit, x_test, z=z)
    return seconds, float(fit.elbo_per_datum[-1]), float(found.log_prob(y_test).mean())


def collapsed(x: Any, y: Any, z: Any, x_test: Any, y_test: Any, steps: int) -> Scores:
    begin, starts = time.process_time(), [{"noise": NOISE}, {"noise": 0.01}]
    fit = dgp.inference.minimize(
        random.key(0), sgpr, None, x, y, z=z, start=starts, steps=steps, progress=False
    )
    seconds = time.process_time() - begin
    with jax.enable_x64(True):
        x, y, z = (jnp.asarray(a, float) for a in (x, y, z))
        params = optimal_inducing({"l1.z": z, **fit.params}, x, y)
        found = dgp.predict(random.key(1), svgp, dgp.MeanField(svgp), params, x_test, z=z)
        return seconds, float(fit.elbo_per_datum[-1]), float(found.log_prob(y_test).mean())


def gpjaxs(x: Any, y: Any, z: Any, x_test: Any, y_test: Any, steps: int) -> Scores:
    with jax.enable_x64(True):
        begin, (x, y, z) = time.process_time(), (jnp.asarray(a, float) for a in (x, y, z))
        prior = gpjax.gps.Prior(
            mean_function=gpjax.mean_functions.Zero(),
            kernel=gpjax.kernels.RBF(lengthscale=jnp.ones(x.shape[1])),
        )
        q = gpjax.variational_families.WhitenedVariationalGaussian(
            model=prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.array(NOISE)),
            inducing_inputs=z,
        )
        q, losses = gpjax.fit_natgrads(
            model=q, objective=lambda q, d: -gpjax.objectives.elbo(q, d),
            train_data=gpjax.Dataset(x, y[:, None]), optim=optax.adam(RATE), natgrad_lr=1.0,
            num_iters=steps, verbose=False,
        )  # fmt: skip
        bound, seconds = -float(losses[-1]) / len(x), time.process_time() - begin
        found = q.model.likelihood(q(jnp.asarray(x_test, float)))
        scale = jnp.sqrt(jnp.diagonal(found.covariance()))
        log_p = jax.scipy.stats.norm.logpdf(y_test, found.mean, scale)
        return seconds, bound, float(log_p.mean())


METHODS = {
    "one layer": natural, "one layer, L-BFGS": collapsed, "one layer, GPJax": gpjaxs
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="energy,concrete,boston,wine_red")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--steps", default="100,1000")
    parser.add_argument("--jsonl", type=Path, default=Path("benchmarks/results/one-layer.jsonl"))
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    names = "data", "split", "steps", "optimizer"
    done = {tuple(row[n] for n in names) for row in map(json.loads, kept)}
    steps = map(int, args.steps.split(","))
    for name, count, method in itertools.product(args.data.split(","), steps, METHODS):
        if (about := (name, args.split, count, method)) in done:
            continue
        arrays = np.load(Path(os.environ["DGP_PPL_DATA"]) / "uci" / f"{name}.npz")
        test = arrays["test_index"][args.split]
        is_test = np.isin(np.arange(len(arrays["X"])), test)
        x, y = arrays["X"], np.ravel(arrays["y"])
        x = (x - x[~is_test].mean(0)) / np.maximum(x[~is_test].std(0), 1e-9)
        scale = y[~is_test].std()
        y = (y - y[~is_test].mean()) / scale
        x_train, y_train, x_test, y_test = (
            jnp.asarray(a, jnp.float32) for a in (x[~is_test], y[~is_test], x[is_test], y[is_test])
        )
        z = x_train[np.random.default_rng(0).permutation(len(x_train))[:M]]
        jax.clear_caches()
        seconds, bound, density = METHODS[method](x_train, y_train, z, x_test, y_test, count)
        row = dict(zip(names, about, strict=True)) | {
            "seconds": seconds, "elbo_per_datum": bound,
            "log_density": density - float(np.log(scale)), "versions": versions(),
        }  # fmt: skip
        print(row, flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
