"""Compare SVI and MCMC on a model of your own: DSVI, a flow, SGHMC and NUTS.

DSVI fits two layers to a steep slope. At its hyperparameters the others have the same posterior of
the inducing values v. The table has what tells posteriors apart: the gap between the bound and the
evidence, the distance to exact draws, predictions, and effective draws. Each posterior becomes an
ArviZ tree, a .nc file, from which all else comes.

    python examples/svi_vs_mcmc.py [--out svi_vs_mcmc] [--seed 0] [--smoke]
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
from jax import random
from numpyro.infer import NUTS

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels, means, plots
from dgp_ppl.criticism import chain_diagnostics
from dgp_ppl.inference import evaluate

Z = np.linspace(-2, 2, 8)[:, None]


def model(x: Any, y: Any = None) -> None:
    """Put your own model here. Its layers must be called l1 and l2, or change `SITES`."""
    f1 = dgp.gp("l1", kernels.SquaredExponential.learned("l1", 1), Z, mean=means.identity)
    f2 = dgp.gp("l2", kernels.SquaredExponential.learned("l2", 1), Z)
    noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)


SITES = ("l1.v", "l2.v")


def slope(key: Any, rows: int) -> tuple[Any, Any]:
    """Two plains with a steep slope between them: no single lengthscale fits both."""
    x = jnp.sort(random.uniform(key, (rows, 1), minval=-2, maxval=2), axis=0)
    noise = 0.15 * random.normal(random.fold_in(key, 1), (rows,))
    return x, jnp.tanh(6 * (x[:, 0] - 0.2)) + noise


def posteriors(key: Any, x: Any, y: Any, steps: int, draws: int) -> Iterator[tuple[Any, ...]]:
    """Yield name, guide, params and result of each method; all share the params of DSVI."""
    keys = random.split(key, 6)
    quiet: dict[str, Any] = {"progress": False}
    dsvi = dgp.MeanField(model)
    first = dgp.fit(keys[0], model, dsvi, x, y, steps=steps, **quiet)
    yield "DSVI", dsvi, first.params, first
    hyper = {n: a for n, a in first.params.items() if ".v." not in n}
    fixed = dgp.freeze(model, hyper)
    coupled = dgp.GlobalInducing(fixed, Z)
    start = coupled.start_from(keys[1], dsvi, first.params, x, y)
    second = dgp.fit(keys[2], fixed, coupled, x, y, steps=steps, start=start, **quiet)
    yield "global inducing", coupled, {**hyper, **second.params}, second
    flow = dgp.Flow(fixed, base=coupled)
    third = dgp.fit(keys[3], fixed, flow, x, y, steps=steps, start=second.params, **quiet)
    yield "flow", flow, {**hyper, **third.params}, third
    program = dgp.transported(model, dsvi, first.params)  # the same posterior, easier to sample
    quiet |= {"num_samples": draws, "num_chains": 4}
    sizes, kernel = {"num_warmup": 8 * draws, "thinning": 50}, dgp.SGHMC(program)
    yield "SGHMC", None, first.params, dgp.run_mcmc(keys[4], kernel, x, y, **sizes, **quiet)
    sizes, kernel = {"num_warmup": draws}, NUTS(program, target_accept_prob=0.95)
    yield "NUTS", None, first.params, dgp.run_mcmc(keys[5], kernel, x, y, **sizes, **quiet)


def draws_of(tree: Any, part: slice = slice(None)) -> dgp.Chains:
    """A tree's draws of v, and the sampler's statistics."""
    v = {n: tree["posterior"][n].values[part] for n in SITES}
    return dgp.Chains(v, {n: a.values[part] for n, a in tree["sample_stats"].items()})


def gaps(key: Any, guides: dict[str, Any], x: Any, y: Any, particles: int) -> dict[str, str]:
    """Return the log evidence less each guide's bound. The last guide starts the annealing."""
    guide, params = list(guides.values())[-1]
    evidence = dgp.annealed_evidence(
        key, model, guide, params, x, y, num_particles=particles, progress=False
    )
    print(f"{evidence}\n")
    found = {}
    for name, (guide, params) in guides.items():
        bound, error = evaluate(key, model, guide, params, x, y, num_draws=10 * particles)
        error = np.hypot(error, evidence.standard_error)
        found[name] = f"{evidence.log_evidence - bound:.2f} ± {error:.2f}"
    return found


def report(
    key: Any, trees: dict[str, Any], gap: dict[str, str], params: Any, data: Any, test: Any
) -> dict[str, Any]:
    """Print the tables; return predictions by name."""
    rows, predictions, exact = {}, {}, draws_of(trees["NUTS"], slice(2))
    for name, tree in trees.items():
        # Two chains of NUTS are the reference; the other two show the effect of chance.
        part = slice(2, 4) if name == "NUTS" else slice(4)
        draws, loo = draws_of(tree, part), criticism.loo(tree)
        given = {"posterior_samples": draws_of(tree), "num_samples": 200}
        p = predictions[name] = dgp.predict(key, model, None, params, test[0], **given)
        distance = dgp.compare_posteriors(key, exact, draws, model, params, *data)
        mixing = {} if name in gap else chain_diagnostics(draws_of(tree))
        seconds = tree.attrs["seconds"]
        found = {
            "gap": gap.get(name), "k-hat": criticism.weights_khat(tree),
            "to NUTS": str(distance.joint), "log density": p.log_prob(test[1]).mean(),
            "CRPS": p.crps(test[1]).mean(), "bad k": int((loo.pareto_k > loo.good_k).sum()),
            "R-hat": mixing.get("rhat"),
            "draws/s": mixing["ess"] / seconds if mixing.get("ess") else None, "seconds": seconds,
        }  # fmt: skip
        rows[name] = {n: f"{a:.3g}" if isinstance(a, float) else a for n, a in found.items()}
    print(pandas.DataFrame(rows).T.fillna("-").to_string())
    print("\nLOO and stacking:\n" + criticism.stacking(trees).round(3).to_string())
    return predictions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("svi_vs_mcmc"), help="a folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", "Estimated shape parameter")  # "bad k" counts these
    steps, draws, passes, rows = (4, 20, 2, 20) if args.smoke else (2000, 600, 10, 60)
    keys = random.split(random.key(args.seed), 6)
    data, (x_test, y_test) = slope(keys[0], rows), slope(keys[1], 200)
    trees, guides, params, seconds = {}, {}, {}, 0.0
    for name, guide, found, result in posteriors(keys[2], *data, steps, draws):
        params, chains = params or found, None if guide else result
        if guide is not None:
            guides[name] = guide, found
        seconds = result.seconds + (seconds if guide is not None else 0.0)  # and of its base
        tree = trees[name] = dgp.to_inferencedata(
            keys[3], model, guide, found, *data, posterior_samples=chains, num_samples=4 * draws,
            num_prior_samples=0, passes=passes, attrs={"seconds": seconds},
        )  # fmt: skip
        tree.to_netcdf(args.out / f"{name}.nc")
    gap = gaps(keys[4], guides, *data, 16 if args.smoke else 256)
    predictions = report(keys[4], trees, gap, params, data, (x_test, y_test))
    levels, bands = np.linspace(0.05, 0.95, 19), {}
    ends = {n: p.quantile(0.5 + np.outer([-0.5, 0.5], levels)) for n, p in predictions.items()}
    for name, p in predictions.items():
        curves = p.mean, *p.interval(0.9), p.function_draws(keys[5], 8)
        bands[name] = dict(zip(("mean", "lower", "upper", "draws"), curves, strict=True))
    pictures = {
        "functions": plots.function_bands(data[0][:, 0], data[1], x_test[:, 0], bands),
        "coverage": plots.coverage_curves(y_test, levels, ends, "Held-out points"),
        "forest": plots.posterior_forest(trees, 4, "Inducing values of both layers"),
        "rank": plots.posterior_rank(trees, title="Ranks among the draws of all"),
    }
    for name, figure in pictures.items():
        figure.savefig(args.out / f"{name}.png", dpi=110)
    print(f"\nwrote {', '.join(trees)} (.nc) and {', '.join(pictures)} (.png) in {args.out}")


if __name__ == "__main__":
    main()
