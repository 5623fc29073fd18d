"""Effective draws a second: NUTS, as method `bayes` has it, and Gibbs sampling as in R's deepgp.

    python benchmarks/gibbs.py [--cases step,piecewise,higdon,hill,currin] [--designs 3] \
        [--jsonl benchmarks/results/gibbs.jsonl]

Both sample `models.exact` of two layers on runs of `emulation.py`, from prior medians, in float64,
two chains each. A sweep of Gibbs sampling moves the hidden layer by an elliptical slice (Murray et
al. 2010), and each hyperparameter by a window of a factor of two (Sauer et al. 2023); a fifth of
20,000 sweeps is left out. NUTS has 250 steps of warm-up and 1,000 draws. Effective draws are of the
log density, of the logs of all hyperparameters, and of the hidden values at the runs: the least and
the median of these; R-hat is the largest. CRPS is of 1,000 other places, by 250 draws of each
chain, in standard deviations of the function. Seconds are of CPU, without compilation. A run goes
on where its file ends. Keep it on one core (`taskset -c 0`, and OPENBLAS_NUM_THREADS=1).
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from emulation import rows
from jax import lax, random
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import NUTS, init_to_median
from numpyro.infer.util import log_density

from dgp_ppl import Chains, models, predict, run_mcmc
from dgp_ppl.comparison import versions
from dgp_ppl.kernels import SquaredExponential

SWEEPS, DRAWS, WARMUP, CHAINS = 20_000, 1000, 250, 2
Values = dict[str, jax.Array]


def log_joint(x: Any, y: Any, values: Values) -> Any:
    return log_density(models.exact, (x, y), {}, values)[0]


def by_gibbs(key: Any, log_p: Callable[[Values], jax.Array], start: Values, sweeps: int) -> Any:
    """Return the values and their log density after each sweep."""
    # log_p has the prior of v, which the slice takes as given.
    log_likelihood = lambda values: log_p(values) + 0.5 * jnp.sum(jnp.square(values["l1.v"]))  # noqa: E731

    def slice_(key: Any, values: Values) -> Values:
        key_nu, key_u, key_angle, key_loop = random.split(key, 4)
        v, nu = values["l1.v"], random.normal(key_nu, values["l1.v"].shape)
        height = log_likelihood(values) + jnp.log(random.uniform(key_u))
        angle = random.uniform(key_angle, maxval=2 * jnp.pi)
        at = lambda a: values | {"l1.v": v * jnp.cos(a) + nu * jnp.sin(a)}  # noqa: E731

        def shrink(state: Any) -> Any:
            key, angle, low, high, _ = state
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            key, key_angle = random.split(key)
            angle = random.uniform(key_angle, minval=low, maxval=high)
            return key, angle, low, high, log_likelihood(at(angle))

        state = key_loop, angle, angle - 2 * jnp.pi, angle, log_likelihood(at(angle))
        return at(lax.while_loop(lambda s: ~(s[4] > height), shrink, state)[1])

    def window(key: Any, values: Values, name: str, place: tuple[int, ...]) -> Values:
        key_new, key_u = random.split(key)
        old = values[name][place]
        new = old * random.uniform(key_new, minval=0.5, maxval=2.0)
        moved = values | {name: values[name].at[place].set(new)}
        # The window is uniform on [old / 2, 2 old], whose width grows with old.
        ratio = log_p(moved) - log_p(values) + jnp.log(old) - jnp.log(new)
        accepted = jnp.log(random.uniform(key_u)) < ratio
        return jax.tree.map(partial(jnp.where, accepted), moved, values)

    def sweep(values: Values, key: Any) -> tuple[Values, Any]:
        values = slice_(key, values)
        places = [(n, i) for n, a in values.items() if n != "l1.v" for i in np.ndindex(a.shape)]
        for number, (name, place) in enumerate(places):
            values = window(random.fold_in(key, number), values, name, place)
        return values, (values, log_p(values))

    return lax.scan(sweep, start, random.split(key, sweeps))[1]


def diagnostics(values: Values, log_p: Any, x: Any) -> dict[str, float]:
    """Return effective draws and R-hat of draws, [C, S, ...] each."""

    def hidden(values: Values) -> jax.Array:
        k = SquaredExponential(values["l1.variance"], values["l1.lengthscale"])
        K = k(x, x) + 1e-10 * jnp.eye(len(x))
        order = jnp.lexsort(x.T)
        return jnp.linalg.cholesky(K[order][:, order]) @ values["l1.v"]

    flat = {n: jnp.asarray(a).reshape(-1, *a.shape[2:]) for n, a in values.items()}
    h = np.asarray(lax.map(hidden, flat)).reshape(*np.shape(log_p), -1)
    logs = [np.log(a).reshape(*np.shape(log_p), -1) for n, a in values.items() if n != "l1.v"]
    every = np.concatenate([h, *logs, np.asarray(log_p)[..., None]], axis=2)
    ess = effective_sample_size(every)
    return {"ess": float(ess.min()), "median": float(np.median(ess)),
            "rhat": float(split_gelman_rubin(every).max())}  # fmt: skip


def one(method: str, case: str, design: int) -> dict[str, Any]:
    *runs, x_test, y_test = rows(case, design)
    x, y = (jnp.asarray(a, float) for a in runs)
    key, log_p = random.key(design), partial(log_joint, x, y)
    if method == "nuts":
        sampler = NUTS(models.exact, max_tree_depth=6, init_strategy=init_to_median)
        draw = lambda key: run_mcmc(  # noqa: E731
            key, sampler, x, y, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS,
            progress=False,
        ).samples  # fmt: skip
        draw(random.fold_in(key, 1))  # compiles
    else:
        sites = {"l1.v": jnp.zeros(x.shape), "noise": jnp.asarray(0.01)}
        sites |= {f"l{i}.lengthscale": jnp.ones(x.shape[1]) for i in (1, 2)}
        sites |= {f"l{i}.variance": jnp.asarray(v) for i, v in ((1, 0.1), (2, 1.0))}
        program = jax.jit(lambda key: by_gibbs(key, log_p, sites, SWEEPS)[0]).lower(key).compile()

        def draw(key: Any) -> Any:
            chains = [program(k) for k in random.split(key, CHAINS)]
            return jax.tree.map(lambda *a: np.stack(a)[:, SWEEPS // 5 :], *chains)

    begun = time.process_time()
    values = jax.block_until_ready(draw(key))
    seconds = time.process_time() - begun
    flat = jax.tree.map(lambda a: jnp.asarray(a).reshape(-1, *a.shape[2:]), values)
    energy = np.asarray(lax.map(log_p, flat)).reshape(CHAINS, -1)
    found = diagnostics(values, energy, x)
    some = {n: np.asarray(a)[:, :: a.shape[1] // 250] for n, a in values.items()}
    options = {"posterior_samples": Chains(some), "num_samples": 500}
    p = predict(key, models.exact, None, {}, x_test, given=(x, y), **options)
    found["crps"] = float(np.mean(p.crps(y_test)) / y_test.std())
    rates = {"per_second": found["ess"] / seconds, "median_per_second": found["median"] / seconds}
    return {"method": method, "case": case, "design": design, **found, "cpu": seconds, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="step,piecewise,higdon,hill,currin")
    parser.add_argument("--designs", type=int, default=3)
    parser.add_argument("--jsonl", type=Path, default=Path("benchmarks/results/gibbs.jsonl"))
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    done = {tuple(json.loads(line)[n] for n in ("method", "case", "design")) for line in kept}
    runs: Any = itertools.product(["nuts", "gibbs"], args.cases.split(","), range(args.designs))
    for method, case, design in runs:
        if (method, case, design) in done:
            continue
        with jax.enable_x64(True):
            row = one(method, case, design)
        print(json.dumps(row), flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps(row | {"versions": versions()}) + "\n")


if __name__ == "__main__":
    main()
