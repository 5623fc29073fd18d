"""Compare every posterior with NUTS on two small problems with fixed hyperparameters.

The model has two layers of 8 inducing inputs each, kernels of variance 1 and lengthscale 0.8, and
noise 0.1. The data are 40 points of a sine with a gap (``sine``) or of a step (``step``). The exact
draws come from eight NUTS chains in the reference space of the mean-field fit.

For each posterior the script prints:

- the energy distance to the exact draws, for each layer and for both together;
- the mean log predictive density on 200 new points, minus that of the exact draws;
- PSIS k-hat and the ELBO;
- for mean field, NumPyro's VSBC diagnostic (the smallest p-value times the number of values).

    python benchmarks/compare_posteriors.py [--problems sine,step] [--json FILE]
"""

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro import handlers
from numpyro.infer import NUTS, TraceMeanField_ELBO, init_to_sample
from numpyro.infer.calibration import vsbc_diagnostic

import dgp_ppl as dgp
from dgp_ppl import initialize, kernels, means
from dgp_ppl.criticism import chain_diagnostics
from dgp_ppl.inference import evaluate

PROBLEMS = ("sine", "step")


def data(name: str, rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, rows)
    if name == "sine":
        x = x + np.sign(x) * 0.5
        f = np.sin(2 * x)
    else:
        f = np.sign(x - 0.2)
    y = f + 0.1 * rng.standard_normal(rows)
    return jnp.asarray(x[:, None], float), jnp.asarray(y, float)


def model(x: Any, y: Any = None) -> None:
    """Two layers. Everything but their inducing values is fixed."""
    kernel = kernels.SquaredExponential(1.0, 0.8)
    f1 = dgp.gp("l1", kernel, np.linspace(-2.2, 2.2, 8)[:, None], mean=means.identity)
    f2 = dgp.gp("l2", kernel, np.linspace(-2.5, 2.5, 8)[:, None])
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.1)), obs=y)


def study(name: str, steps: int) -> Any:
    """Yield the rows of the table."""
    keys = random.split(random.key(0), 12)
    (x, y), test = data(name, 40, 0), data(name, 200, 1)
    options: dict[str, Any] = {"progress": False, "steps": steps, "learning_rate": 0.03}
    mean_field = dgp.MeanField(model)
    fits: dict[str, Any] = {"mean_field": dgp.fit(keys[2], model, mean_field, x, y, **options)}
    guides: dict[str, Any] = {"mean_field": mean_field}
    transported = dgp.transported(model, mean_field, fits["mean_field"].params)
    exact = dgp.run_mcmc(
        keys[3], NUTS(transported, init_strategy=init_to_sample), x, y, num_warmup=1000,
        num_samples=1000, num_chains=8, progress=False,
    )  # fmt: skip
    yield {"posterior": "nuts"} | {n: v for n, v in chain_diagnostics(layers(exact)).items()}

    guides["decoupled"] = dgp.Decoupled(model, initialize.inducing_inputs(keys[4], x, 16))
    fits["decoupled"] = dgp.fit(keys[5], model, guides["decoupled"], x, y, **options)
    coupled = dgp.GlobalInducing(model, initialize.inducing_inputs(keys[6], x, 20))
    start = coupled.start_from(keys[7], mean_field, fits["mean_field"].params, x, y)
    fits["global_inducing"] = dgp.fit(keys[8], model, coupled, x, y, start=start, **options)
    guides["global_inducing"] = coupled
    diffusion = dgp.Diffusion(model, steps=8, base=coupled, informed=(x, y))
    guides["diffusion"] = diffusion
    fits["diffusion"] = dgp.fit(
        keys[9], model, diffusion, x, y, start=fits["global_inducing"].params,
        loss=dgp.DiffusionELBO(16), keep_best=True, **options,
    )  # fmt: skip
    guides["implicit"] = dgp.Implicit(model)
    fits["implicit"] = dgp.fit(keys[10], model, guides["implicit"], x, y, **options)
    for kind, guide in guides.items():
        params = fits[kind].params
        bound, error = evaluate(keys[11], model, guide, params, x, y, num_draws=1000)
        found = dgp.compare_posteriors(
            keys[11], layers(exact), guide, model, params, x, y, test=test
        )
        yield {"posterior": kind, "elbo": round(bound, 3), "elbo_error": round(error, 3)} | row(
            found
        )
    chains = dgp.run_mcmc(
        keys[11], dgp.SGHMC(model), x, y, num_warmup=4000, num_samples=1000, thinning=50,
        num_chains=8, progress=False,
    )  # fmt: skip
    found = dgp.compare_posteriors(
        keys[11], layers(exact), layers(chains), model, {}, x, y, test=test
    )
    yield {"posterior": "sghmc"} | chain_diagnostics(layers(chains)) | row(found)
    yield {"posterior": "mean_field"} | calibration(random.PRNGKey(0), x)  # no typed key


def layers(chains: dgp.Chains) -> dgp.Chains:
    """Keep the layers' inducing values only."""
    kept = {n: chains.samples[n] for n in ("l1.v", "l2.v")}
    return dgp.Chains(kept, chains.fields, chains.state, chains.steps, chains.seconds)


def row(found: dgp.PosteriorComparison) -> dict[str, Any]:
    estimates = {**found.sites, "joint": found.joint, "log_density": found.log_density}
    numbers = {n: [round(e.value, 4), round(e.error, 4)] for n, e in estimates.items() if e}
    return numbers | {"khat": None if found.khat is None else round(found.khat, 2)}


def calibration(key: Any, x: Any) -> dict[str, Any]:
    """Run variational simulation-based calibration of mean field on data drawn from the model."""
    found = vsbc_diagnostic(
        key, _quiet, dgp.MeanField(_quiet), numpyro.optim.Adam(0.02), TraceMeanField_ELBO(), x,
        observed_sites=["y"], num_simulations=100, num_svi_steps=1000, num_samples=500,
    )  # fmt: skip
    values = np.concatenate([np.ravel(p) for p in found.ks_pvalues.values()])
    return {"vsbc_p": round(float(min(1.0, values.min() * len(values))), 3)}


def _quiet(x: Any, y: Any = None) -> None:
    """The model without the sites of its unit noise, which are not latents to calibrate."""
    noise = numpyro.prng_key()
    hidden = handlers.block(hide_fn=lambda s: s.get("infer", {}).get("is_auxiliary", False))
    with hidden, handlers.seed(rng_seed=noise):
        model(x, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    about = {"steps": args.steps, "jax": jax.__version__, "python": platform.python_version()}
    rows = []
    for name in args.problems.split(","):
        for found in study(name, args.steps):
            rows.append({"problem": name} | found)
            print(json.dumps(rows[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
        jax.clear_caches()  # a process holds a limited number of compiled programs


if __name__ == "__main__":
    main()
