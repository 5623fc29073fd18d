"""Compare MCMC kernels: effective draws per gradient and per second, and bias of the variances.

Problems:

- ``gaussian``: 20 values whose covariance has eigenvalues from 1e-4 to 1 and a random basis;
- ``eight_schools``, with the effects non-centred;
- ``logistic``: breast cancer with 30 standardised inputs, weights with the prior N(0, 1);
- ``gp``: one layer of M = 20 inducing inputs, 200 points of two classes, fixed hyperparameters;
- ``step``: the two layers of `step_problem.py`, in v; ``step_transported``: in the reference space
  of its `MeanField` fit;
- ``bias``: the bias of variances of independent Gaussians of 5, 20 and 100 values with variances
  from 1e-4 to 1, from 16 chains.

Each kernel runs four vectorised chains of NumPyro's `MCMC`. Seconds are the CPU's, of a second run
of compiled programs without warm-up; `total_seconds` has warm-up and compilation. An effective
sample size is the smallest of all latent values. The bias is the mean over latent values of the
draws' mean square around the reference mean, divided by the reference variance, less 1. Its
standard error is that of the chains, and of the reference. The reference is exact for ``gaussian``,
along the eigenvectors, else a long NUTS run.

    python benchmarks/samplers.py [--problems gaussian,...] [--kernels nuts;...] [--json FILE]
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from blackjax.base import AdaptationAlgorithm
from jax import random
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_breast_cancer
from step_problem import model as step_model, step_data

import dgp_ppl as dgp
from dgp_ppl import kernels

CHAINS, WARMUP, REFERENCE = 4, 1000, 2000
BIAS = "bias"


class Problem(NamedTuple):
    """A model, its arguments, and the number of latent values."""

    model: Callable[..., None]
    args: tuple[Any, ...]
    dim: int
    variances: Any = None  # of the latent values, if they are known


class Setting(NamedTuple):
    """A kernel, and how to run it.

    `work` has the gradients of a draw, as a function of the extra fields, which are summed.
    """

    kernel: Callable[[Problem], Any]
    num_samples: int
    thinning: int
    fields: tuple[str, ...]
    work: Callable[[dict[str, Any]], float] | None


def gaussian() -> Problem:
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    covariance = (basis * np.logspace(-4, 0, 20)) @ basis.T

    def model() -> None:
        root = jnp.asarray(np.linalg.cholesky(covariance))
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(20), scale_tril=root))

    return Problem(model, (), 20, {"x": np.logspace(-4, 0, 20), "basis": basis})


def eight_schools() -> Problem:
    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def model(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            effect = numpyro.sample("effect", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu + tau * effect, sigma), obs=y)

    return Problem(model, (y,), 10)


def logistic() -> Problem:
    x, y = load_breast_cancer(return_X_y=True)
    x, y = np.asarray(x), np.asarray(y)
    x = np.asarray((x - x.mean(0)) / x.std(0), np.float32)

    def model(x: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0, 5))
        w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)

    return Problem(model, (jnp.asarray(x), jnp.asarray(y)), 31)


def gp() -> Problem:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 200))
    y = (np.sin(3 * x) + 0.7 * rng.standard_normal(200) > 0).astype(np.float32)

    def model(x: Any, y: Any) -> None:
        f = dgp.gp("f", kernels.SquaredExponential(2.0, 0.5), np.linspace(-2, 2, 20)[:, None])
        with dgp.minibatch(x, y) as (x, y):
            f = f(x)
            numpyro.sample("y", dgp.observe(f, dgp.BernoulliProbit), obs=y)

    return Problem(model, (jnp.asarray(x[:, None], jnp.float32), jnp.asarray(y)), 20)


def step() -> Problem:
    return Problem(step_model, step_data(), 17)  # with one value of noise that nothing uses


def step_transported() -> Problem:
    x, y = step_data()
    key = random.key(0)
    guide = dgp.MeanField(step_model)
    fit = dgp.fit(key, step_model, guide, x, y, steps=4000, progress=False)
    return Problem(dgp.transported(step_model, guide, fit.params), (x, y), 17)


def mclmc(model: Any, energy_variance: float = 5e-4) -> Any:
    """Return BlackJAX's sampler without adjustment, with BlackJAX's search for its settings."""

    def adaptation(density: Any) -> Any:
        def search(key: Any, position: Any, num_steps: int) -> Any:
            first, key = random.split(key)
            state, found, *_ = blackjax.mclmc_find_L_and_step_size(
                blackjax.mclmc.build_kernel(), num_steps,
                blackjax.mclmc.init(position, density, first), key, logdensity_fn=density,
                frac_tune1=1 / 3, frac_tune2=1 / 3, frac_tune3=1 / 3,
                desired_energy_var=energy_variance,
            )  # fmt: skip
            return (state, found._asdict()), None

        run: Any = search  # BlackJAX's type of it has no number of steps
        return AdaptationAlgorithm(run)

    return dgp.BlackJAXKernel(model, blackjax.mclmc, adaptation=adaptation)


def biases() -> Any:
    """Yield the bias of variances of the microcanonical kernels on Gaussians, by dimension."""
    for dim in (5, 20, 100):
        sd = jnp.logspace(-2, 0, dim)
        kernels = {
            f"mclmc, variance {v:g}": lambda m, v=v: mclmc(m, v) for v in (5e-3, 5e-4, 5e-5)
        } | {"adjusted mclmc": dgp.AdjustedMCLMC}
        for name, kernel in kernels.items():
            chains = dgp.run_mcmc(
                random.key(2), kernel(_diagonal(sd)), num_warmup=1000, num_samples=4000,
                thinning=1 if "adjusted" in name else 5, num_chains=16, progress=False,
                extra_fields=() if "adjusted" in name else ("energy_error",),
            )  # fmt: skip
            ratios = np.square(chains.samples["x"] / np.asarray(sd)).mean((1, 2))  # [C]
            row = {
                "problem": f"{BIAS}: {dim} values",
                "kernel": name,
                "variance_bias": round(float(ratios.mean() - 1), 4),
                "variance_bias_error": round(float(ratios.std(ddof=1) / 4), 4),
            }
            if "energy_error" in chains.fields:
                square = np.square(chains.fields["energy_error"]).mean()
                row["energy_variance"] = float(f"{square / dim:.2g}")
            yield row


def _diagonal(sd: Any) -> Callable[[], None]:
    def model() -> None:
        numpyro.sample("x", dist.Normal(0, sd).to_event(1))

    return model


PROBLEMS = {f.__name__: f for f in (gaussian, eight_schools, logistic, gp, step, step_transported)}


def slices(problem: Problem) -> Any:
    def algorithm(density: Any) -> Any:
        zeros = jnp.zeros(problem.dim)
        likelihood = lambda u: density(u) + 0.5 * u @ u  # noqa: E731
        return blackjax.elliptical_slice(likelihood, mean=zeros, cov=zeros + 1)

    return dgp.BlackJAXKernel(problem.model, algorithm)


KERNELS = {
    "nuts": Setting(lambda p: NUTS(p.model), 1000, 1, ("num_steps",), lambda f: f["num_steps"]),
    "mclmc": Setting(
        lambda p: mclmc(p.model), 20_000, 4, ("energy_error",),
        lambda f: 8 * f["count"],
    ),
    "adjusted mclmc": Setting(
        lambda p: dgp.AdjustedMCLMC(p.model), 1000, 1, ("num_steps", "accept_prob"),
        lambda f: 2 * f["num_steps"],
    ),
    "sghmc": Setting(
        lambda p: dgp.SGHMC(p.model), 20_000, 4, ("temperature",), lambda f: 4 * f["count"]
    ),
    "elliptical slice": Setting(slices, 20_000, 4, ("info.subiter",), None),
}  # fmt: skip


class Run(NamedTuple):
    """Draws of the latent sites [C, S, d], extra fields, and CPU seconds of draws and in all."""

    draws: np.ndarray
    fields: dict[str, np.ndarray]
    seconds: float
    total: float


def run(key: Any, kernel: Any, problem: Problem, setting: Setting, num_samples: int) -> Run:
    begun = time.process_time()
    mcmc = MCMC(
        kernel, num_warmup=WARMUP, num_samples=num_samples, num_chains=CHAINS,
        thinning=setting.thinning, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    fields = (*setting.fields, "diverging")
    mcmc.warmup(key, *problem.args, extra_fields=fields)
    warm: Any = mcmc.post_warmup_state

    def draw() -> Any:
        mcmc.post_warmup_state = warm
        mcmc.run(warm.rng_key, *problem.args, extra_fields=fields)
        return jax.block_until_ready(mcmc.get_samples(group_by_chain=True))

    draw()  # compiles
    start = time.process_time()
    samples = draw()
    seconds = time.process_time() - start
    # Auxiliary sites are noise, and deterministic ones functions of the others.
    trace = numpyro.handlers.trace(numpyro.handlers.seed(problem.model, 0))
    sites = trace.get_trace(*problem.args)
    names = [
        n for n, s in sites.items()
        if s["type"] == "sample" and not s["is_observed"] and not s["infer"].get("is_auxiliary")
    ]  # fmt: skip
    # The unconstrained scale: half-Cauchy's variance is infinite.
    latent = [np.log(samples[n]) if n == "tau" else np.asarray(samples[n]) for n in sorted(names)]
    draws = np.concatenate([a.reshape(*a.shape[:2], -1) for a in latent], -1)
    found = {n: np.asarray(a) for n, a in mcmc.get_extra_fields(group_by_chain=True).items()}
    return Run(draws, found, seconds, time.process_time() - begun)


def measure(name: str, wanted: list[str]) -> Any:
    """Yield a row of results for each kernel."""
    problem = PROBLEMS[name]()
    rotation = np.eye(problem.dim)
    if problem.variances is not None:
        center, exact, noise = 0.0, problem.variances["x"], 0.0
        rotation = problem.variances["basis"]
    else:
        long = run(random.key(9), NUTS(problem.model), problem, KERNELS["nuts"], REFERENCE)
        center, rotation = long.draws.mean((0, 1)), np.eye(long.draws.shape[-1])
        squares = np.square(long.draws - center).mean(1)  # [C, d]
        exact = squares.mean(0)
        noise = (squares / exact).mean(1).std(ddof=1) / np.sqrt(CHAINS)
    for kernel in wanted:
        setting = KERNELS[kernel]
        if kernel == "elliptical slice" and name not in ("gp", "step", "step_transported"):
            continue
        found = run(random.key(1), setting.kernel(problem), problem, setting, setting.num_samples)
        draws = found.draws
        ess = float(np.min(effective_sample_size(draws)))
        ratios = np.square(draws @ rotation - center).mean(1) / exact  # [C, d]
        biases = ratios.mean(1) - 1
        error = np.hypot(biases.std(ddof=1) / np.sqrt(CHAINS), noise)
        row = {
            "problem": name,
            "kernel": kernel,
            "ess": round(ess) if np.isfinite(ess) else "stuck",
            "ess_per_second": round(ess / found.seconds, 1) if np.isfinite(ess) else "stuck",
            "seconds": round(found.seconds, 2),
            "total_seconds": round(found.total, 1),
            "rhat": round(float(np.max(gelman_rubin(draws))), 3),
            "variance_bias": round(float(biases.mean()), 4),
            "variance_bias_error": round(float(error), 4),
            "diverging": round(float(found.fields["diverging"].mean()), 4),
        }
        if setting.work is not None and np.isfinite(ess):
            sums = {n: float(a.sum()) for n, a in found.fields.items()}
            work = setting.work(sums | {"count": found.fields["diverging"].size})
            row["ess_per_1000_gradients"] = round(1000 * ess / work, 2)
        if "energy_error" in found.fields:
            square = np.square(found.fields["energy_error"]).mean()
            row["energy_variance"] = float(f"{square / problem.dim:.2g}")
        if "accept_prob" in found.fields:
            row["accept_prob"] = round(float(found.fields["accept_prob"].mean()), 3)
        yield row
        jax.clear_caches()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join([*PROBLEMS, BIAS]))
    parser.add_argument("--kernels", default=";".join(KERNELS), help="separated by semicolons")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Any] = []
    record = {
        "chains": CHAINS,
        "warmup": WARMUP,
        "jax": jax.__version__,
        "numpyro": numpyro.__version__,
        "blackjax": blackjax.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rows": rows,
    }
    for name in args.problems.split(","):
        for row in biases() if name == BIAS else measure(name, args.kernels.split(";")):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if args.json:
                args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
