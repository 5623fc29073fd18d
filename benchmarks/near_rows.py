"""Compare deep GPs with and without a rough process of near rows, on the splits of the UCI sets.

    DGP_PPL_DATA=... python benchmarks/near_rows.py [--data energy,concrete] [--splits 3] \
        [--steps 1500] [--depth 2] [--near VARIANT] [--jsonl benchmarks/results/near-rows.jsonl]

Natural gradients from one start, 100 inducing inputs, minibatches of 1,000 rows. A record has RMSE
and log density in the units of the data, of all held-out rows and of those that are no training
rows, the share of held-out targets in 90 % intervals, and CPU seconds of the fit; with near rows
also those after `tune_local`, ``tuned``. One layer is also fitted with g over all rows, ``near`` is
``"exact"``, to sets of at most 1,000. With ``--near stages`` the deep GP is fitted without g, and
then g to what it leaves; with ``three`` a third of the steps are without g, which `tune_local` then
starts; with ``diagonal`` the fit drops the covariance of f between rows, and with ``certain`` its
variance too; with ``prior`` the noise is LogNormal(log 0.3, 1) a priori. A run goes on where its
file ends. Keep it on one core (`taskset -c 0`).
"""

import argparse
import copy
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from numpyro import handlers
from numpyro.primitives import Messenger

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.comparison import versions
from dgp_ppl.sklearn import DeepGPRegressor
from dgp_ppl.standardize import Standardizer

_EXACT_ROWS = 1000  # up to which the method `local` of one layer is exact


class Dropped(Messenger):
    """Keeps this share of the covariance of f in a block: its diagonal, or nothing."""

    def __init__(self, variance: float) -> None:
        self.variance = variance
        super().__init__()

    def process_message(self, msg: Any) -> None:
        if hasattr(msg.get("fn"), "rough"):
            msg["fn"] = fn = copy.copy(msg["fn"])
            fn.cov = self.variance * fn.cov * jnp.eye(fn.cov.shape[-1])[None]


def diagonal(x: Any, y: Any = None, **kwargs: Any) -> None:
    with Dropped(1.0):
        models.deep_gp(x, y, **kwargs)


def certain(x: Any, y: Any = None, **kwargs: Any) -> None:
    with Dropped(0.0):
        models.deep_gp(x, y, **kwargs)


def prior(x: Any, y: Any = None, **kwargs: Any) -> None:
    with handlers.trace() as sites:
        models.deep_gp(x, y, **kwargs)
    numpyro.factor("prior", -0.5 * jnp.square(jnp.log(sites["noise"]["value"] / 0.3)))


TRAINED: Any = {"diagonal": diagonal, "certain": certain, "prior": prior}  # other models to fit


def scores(x: Any, y: Any, new: Any, y_new: Any, steps: int, depth: int, near: Any) -> Any:
    keys, scale = random.split(random.key(0), 3), Standardizer.fit(x, y)
    rows = x, y
    x, y = scale.inputs(x).astype(np.float32), scale.outputs(y).astype(np.float32)
    kwargs: dict[str, Any] = initialize.deep_gp(keys[0], x, num_inducing=100, depth=depth)
    local, start = {} if near in (False, "exact") else {"local": dgp.NearRows(x, y)}, None
    guide, begin = dgp.MeanField(models.deep_gp), time.process_time()
    model = TRAINED.get(near, models.deep_gp)
    if near == "exact":
        gp = DeepGPRegressor(method="local", depth=1, steps=steps, random_state=0).fit(*rows)
        fit, predict, last = cast(dgp.FitResult, gp.result_), lambda _: gp.prediction(new), 1
    else:
        options: Any = {"batch_size": 1000, "progress": False}
        if near in ("stages", "three"):
            first_steps = steps if near == "stages" else steps // 3
            start = dgp.fit(
                keys[1], models.deep_gp, guide, x, y, steps=first_steps, **options, **kwargs
            ).params
            steps = max(steps - first_steps, 1)
        kwargs |= local
        if near == "three":
            start = dgp.fit(
                keys[1], model, guide, x, y, steps=1, start=start, **options, **kwargs
            ).params
            start = dgp.tune_local(keys[1], model, guide, start, **kwargs)
        fit = dgp.fit(
            keys[1], model, dgp.MeanField(model), x, y, steps=steps, start=start, **options,
            **kwargs,
        )  # fmt: skip
        predict, last = lambda params: dgp.predict(
            keys[2], models.deep_gp, guide, params, new, num_samples=50, standardizer=scale,
            **kwargs,
        ), 100  # fmt: skip
    first = {"elbo_per_datum": float(np.mean(fit.elbo_per_datum[-last:]))}
    seen = set(map(bytes, np.ascontiguousarray(x)))
    others = [bytes(row) not in seen for row in scale.inputs(new).astype(np.float32)]

    def held_out(params: Any, begin: float) -> dict[str, float]:
        seconds = time.process_time() - begin
        p = predict(params)
        error, log_p, ends = y_new - p.mean, p.log_prob(y_new), p.interval(0.9)
        return {
            "seconds": seconds,
            "rmse": float(np.sqrt(np.mean(error**2))),
            "log_density": float(np.mean(log_p)),
            "unseen": float(np.mean(others)),
            "rmse_of_unseen": float(np.sqrt(np.mean(error[others] ** 2))),
            "log_density_of_unseen": float(np.mean(log_p[others])),
            "coverage": float(np.mean((ends[0] <= y_new) & (y_new <= ends[1]))),
        }

    found: dict[str, Any] = first | held_out(fit, begin)
    if local:
        begin = time.process_time()
        tuned = dgp.tune_local(keys[1], models.deep_gp, guide, fit, **kwargs)
        found["tuned"] = held_out(tuned, begin)
        bound, _ = dgp.evaluate(keys[2], models.deep_gp, guide, tuned, x, y, **kwargs)
        found["tuned"]["elbo_per_datum"] = float(bound) / len(x)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="boston,concrete,energy,wine_red,power,kin8nm,protein")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument(
        "--near", choices=["stages", "three", *TRAINED], help="only this, beside the rest"
    )
    parser.add_argument("--jsonl", type=Path, default=Path("benchmarks/results/near-rows.jsonl"))
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    names = "data", "split", "steps", "depth", "near"
    done = {tuple(row[n] for n in names) for row in map(json.loads, kept)}
    for split, name, near in itertools.product(
        range(args.splits),
        args.data.split(","),
        [args.near] if args.near else [True, False, "exact"],
    ):
        if (about := (name, split, args.steps, args.depth, near)) in done:
            continue
        arrays = np.load(Path(os.environ["DGP_PPL_DATA"]) / "uci" / f"{name}.npz")
        x, y = arrays["X"].astype(float), np.ravel(arrays["y"]).astype(float)
        is_test = np.isin(np.arange(len(x)), arrays["test_index"][split])
        if near == "exact" and (args.depth > 1 or np.sum(~is_test) > _EXACT_ROWS):
            continue
        jax.clear_caches()
        rows = x[~is_test], y[~is_test], x[is_test], y[is_test]
        found = scores(*rows, args.steps, args.depth, near)
        row = dict(zip(names, about, strict=True)) | found | {"versions": versions()}
        print(row, flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
