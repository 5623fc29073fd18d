"""Fit seven likelihoods that users of GP libraries often ask for: a few lines each.

Each likelihood gets data of its kind, made from the same function f(x) = sin(3 x). The program
prints the ELBO per datum and the error of the inferred function on a grid.

    python examples/likelihoods.py [--steps 2000] [--smoke]
"""

import argparse
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods

Z = np.linspace(-2, 2, 15)[:, None]
GRID = np.linspace(-1.9, 1.9, 60)[:, None]
ONE = np.ones(60)
MIXING = np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.5]])


def positive(name: str, value: float) -> Any:
    return numpyro.param(name, value, constraint=dist.constraints.positive)


def heteroscedastic() -> Any:  # out=2: the second latent is the log of the noise
    return lambda f, _: likelihoods.heteroscedastic(f)


def student_t() -> Any:
    noise = positive("noise", 0.3)
    return lambda f, _: dist.StudentT(3.0, f, noise)


def poisson() -> Any:
    return lambda f, exposure: likelihoods.PoissonLog(f + jnp.log(exposure))


def negative_binomial() -> Any:
    concentration = positive("concentration", 5.0)
    return lambda f, exposure: likelihoods.NegativeBinomialLog(f + jnp.log(exposure), concentration)


def censored() -> Any:  # the instrument stops at 0.5
    noise = positive("noise", 0.3)
    return lambda f, _: likelihoods.CensoredNormal(f, noise, high=0.5)


def mixed() -> Any:  # linear model of coregionalisation: three outputs of two functions
    w: Any = numpyro.param("mixing", 0.8 * MIXING)
    noise = positive("noise", 0.3)
    return lambda f, _: dist.Normal(f @ w.T, noise).to_event(1)


def two_outputs() -> Any:
    noise = positive("noise", 0.3)
    return lambda f, _: dist.Normal(f, noise).to_event(1)


def model(x: Any, extra: Any, y: Any = None, mask: Any = None, *, make: Any, out: int = 1) -> None:
    """A GP with a likelihood of its draws and of other row data (an exposure)."""
    z: Any = numpyro.param("f.z", Z)
    f = dgp.gp("f", kernels.SquaredExponential.learned("f", 1), z, out=out)
    likelihood = make()
    with dgp.minibatch(x, extra, y, mask) as (x, extra, y, mask):
        observed = dgp.observe(f(x), lambda f: likelihood(f, extra), mask=mask)
        numpyro.sample("y", observed, obs=y)


# Each likelihood with a function that simulates data from f, unit noise, a generator and exposures.
KINDS = {
    heteroscedastic: lambda f, e, rng, _: f + np.exp(-1.5 + f) * e,
    student_t: lambda f, e, rng, _: f + 0.2 * rng.standard_t(1.5, len(f)),
    poisson: lambda f, e, rng, exposure: rng.poisson(exposure * np.exp(f)),
    negative_binomial: lambda f, e, rng, exposure: rng.poisson(
        exposure * np.exp(f) * rng.gamma(3, 1 / 3, len(f))
    ),
    censored: lambda f, e, rng, _: np.minimum(f + 0.2 * e, 0.5),
    mixed: lambda f, e, rng, _: (
        np.stack([f, 1 - f], axis=1) @ MIXING.T + 0.2 * rng.standard_normal((len(f), 3))
    ),
    two_outputs: lambda f, e, rng, _: np.stack([f + 0.2 * e, -f + 0.2 * e[::-1]], axis=1),
}
OUTPUTS = {heteroscedastic: 2, mixed: 2, two_outputs: 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    steps, rows = (5, 20) if args.smoke else (args.steps, 200)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (rows, 1))
    exposure = rng.uniform(1, 5, rows)
    for make, simulate in KINDS.items():
        y = simulate(np.sin(3 * x[:, 0]), rng.standard_normal(rows), rng, exposure)
        mask = rng.uniform(size=y.shape) < 0.5 if make is two_outputs else None
        y = y if mask is None else np.where(mask, y, np.nan)  # half of the entries are missing
        kwargs = {"make": make, "out": OUTPUTS.get(make, 1)}
        guide = dgp.MeanField(model)
        options = {"steps": steps, "learning_rate": 0.03, "progress": False}
        fit = dgp.fit(random.key(0), model, guide, x, exposure, y, mask, **options, **kwargs)
        held = dgp.predict(random.key(1), model, guide, fit.params, GRID, ONE, **kwargs)
        # The first mixed output equals f. Elsewhere f is the layer's first output.
        draws = held.function_draws(random.key(2), 100).reshape(100, len(GRID), -1)
        found = held.mean[:, 0] if make is mixed else draws[..., 0].mean(axis=0)
        error = np.sqrt(np.mean(np.square(found - np.sin(3 * GRID[:, 0]))))
        bound = fit.elbo_per_datum[-100:].mean()
        print(f"{make.__name__:18s} ELBO per datum {bound:7.3f}   error of f {error:.3f}")


if __name__ == "__main__":
    main()
