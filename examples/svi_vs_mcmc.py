"""Compare SVI and MCMC on a model of your own: DSVI, a flow, SGHMC and NUTS.

DSVI fits two layers to a steep slope. At these hyperparameters all methods have the same posterior
of the inducing values v. The table has what tells posteriors apart: the gap between the bound and
the evidence, the distance to exact draws, predictions, and effective draws.

    python examples/svi_vs_mcmc.py [--out svi_vs_mcmc] [--seed 0] [--smoke]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arviz_plots
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import xarray
from jax import random
from numpyro.infer import NUTS

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels, means, plots
from dgp_ppl.inference import evaluate

Z, SITES = np.linspace(-2, 2, 8)[:, None], ("l1.v", "l2.v")


def model(x: Any, y: Any = None) -> None:
    """Put your own model here, and the sites of its layers into `SITES`."""
    f1 = dgp.gp("l1", kernels.SquaredExponential.learned("l1", 1), Z, mean=means.identity)
    f2 = dgp.gp("l2", kernels.SquaredExponential.learned("l2", 1), Z)
    noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)


def slope(key: Any, rows: int) -> tuple[Any, Any]:
    """Two plains with a steep slope between them: no single lengthscale fits both."""
    x = jnp.sort(random.uniform(key, (rows, 1), minval=-2, maxval=2), axis=0)
    return x, jnp.tanh(6 * (x[:, 0] - 0.2)) + 0.15 * random.normal(random.fold_in(key, 1), (rows,))


def posteriors(key: Any, data: Any, steps: int, draws: int) -> Iterator[tuple[Any, ...]]:
    """Yield name, guide, params and result of each method; all share the params of DSVI."""
    keys, quiet = random.split(key, 6), dict[str, Any](progress=False)
    dsvi = dgp.MeanField(model)
    first = dgp.fit(keys[0], model, dsvi, *data, steps=steps, **quiet)
    yield "DSVI", dsvi, first.params, first
    hyper = {n: a for n, a in first.params.items() if ".v." not in n}
    fixed = dgp.freeze(model, hyper)
    coupled = dgp.GlobalInducing(fixed, Z)
    start = coupled.start_from(keys[1], dsvi, first.params, *data)
    second = dgp.fit(keys[2], fixed, coupled, *data, steps=steps, start=start, **quiet)
    yield "global inducing", coupled, {**hyper, **second.params}, second
    flow = dgp.Flow(fixed, base=coupled)
    third = dgp.fit(keys[3], fixed, flow, *data, steps=steps, start=second.params, **quiet)
    yield "flow", flow, {**hyper, **third.params}, third
    program = dgp.transported(model, dsvi, first.params)  # the same posterior, easier to sample
    size: dict[str, Any] = {"num_samples": draws, "num_chains": 4, **quiet}
    kernel, warmup = dgp.SGHMC(program), {"num_warmup": 8 * draws, "thinning": 50}
    yield "SGHMC", None, first.params, dgp.run_mcmc(keys[4], kernel, *data, **warmup, **size)
    kernel = NUTS(program, target_accept_prob=0.95)
    result = dgp.run_mcmc(keys[5], kernel, *data, num_warmup=draws, **size)
    yield "NUTS", None, first.params, result


def row(key: Any, guide: Any, params: Any, draws: Any, exact: Any, data: Any, test: Any) -> Any:
    """Return what a table says of a posterior, and its predictions."""
    given = {"posterior_samples": draws, "num_samples": 200}
    p = dgp.predict(key, model, None, params, test[0], **given)
    found = {"log density": p.log_prob(test[1]).mean(), "CRPS": p.crps(test[1]).mean()}
    found["to NUTS"] = str(dgp.compare_posteriors(key, exact, draws, model, params, *data).joint)
    if guide is None:
        return found | criticism.chain_diagnostics(draws), p
    return found | {"bound": evaluate(key, model, guide, params, *data, num_draws=1000)[0]}, p


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("svi_vs_mcmc"), help="a folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    pandas.set_option("display.width", 120, "display.max_columns", 20)
    steps, draws, passes, rows = (4, 20, 2, 20) if args.smoke else (2000, 600, 10, 60)
    keys = random.split(random.key(args.seed), 6)
    data, test = slope(keys[0], rows), slope(keys[1], 200)
    found, trees, table, bands = {}, {}, {}, {}
    for name, guide, params, result in posteriors(keys[2], data, steps, draws):
        found[name], seconds = (guide, params), {"seconds": result.seconds}
        trees[name] = dgp.to_inferencedata(
            keys[3], model, guide, params, *data, posterior_samples=None if guide else result,
            num_samples=4 * draws, num_prior_samples=0, passes=passes, attrs=seconds,
        )  # fmt: skip
        trees[name].to_netcdf(args.out / f"{name}.nc")
    v = {n: {s: t["posterior"][s].values for s in SITES} for n, t in trees.items()}
    exact = dgp.Chains({s: a[:2] for s, a in v["NUTS"].items()})  # two more chains show chance
    evidence = dgp.annealed_evidence(keys[4], model, *found["flow"], *data, progress=False)
    for name, (guide, params) in found.items():
        sites = {s: a[2:] if name == "NUTS" else a for s, a in v[name].items()}
        table[name], p = row(keys[4], guide, params, dgp.Chains(sites), exact, data, test)
        table[name]["gap"] = evidence.log_evidence - table[name].pop("bound", np.nan)
        table[name] |= {"k-hat": criticism.weights_khat(trees[name]), **trees[name].attrs}
        curves = p.mean, *p.interval(0.9), p.function_draws(keys[5], 8)
        bands[name] = dict(zip(("mean", "lower", "upper", "draws"), curves, strict=True))
    columns = ["gap", "k-hat", "to NUTS", "log density", "CRPS", "rhat", "ess", "seconds"]
    frame = pandas.DataFrame(table).T[columns].fillna("-")
    print(f"{evidence}\n\n{frame.map(lambda a: f'{a:.3g}' if isinstance(a, float) else a)}")
    figure = plots.function_bands(data[0][:, 0], data[1], test[0][:, 0], bands)
    figure.savefig(args.out / "functions.png", dpi=110)
    shown = dict.fromkeys(("l1.inducing", "l2.inducing"), range(0, len(Z), 2))
    flat = {}
    for name, tree in trees.items():  # all have as many draws, in different numbers of chains
        joined = tree["posterior"].to_dataset()[list(SITES)].stack(sample=["chain", "draw"])
        joined = joined.drop_vars(["sample", "chain", "draw"])
        flat[name] = xarray.DataTree.from_dict({"posterior": joined})
    forest = arviz_plots.plot_forest(
        flat, sample_dims=["sample"], coords=shown, backend="matplotlib"
    )
    forest.savefig(args.out / "forest.png", dpi=110)
    print(f"\nwrote {', '.join(trees)} (.nc), functions.png and forest.png in {args.out}")


if __name__ == "__main__":
    main()
