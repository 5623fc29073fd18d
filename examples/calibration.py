"""Calibrate a simulator to observations, with its discrepancy (Kennedy & O'Hagan 2001).

A costly simulator has a control x and two unknown parameters. Sixty runs make an emulator, which is
a random function inside a NumPyro model: observations are the simulator at the true parameters,
plus a discrepancy (a GP) and noise. NUTS finds all of them. Many simulated sets show whether the
intervals of the parameters hold what they say.

    python examples/calibration.py [--sets 1] [--smoke]
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import NUTS
from scipy.stats import qmc

import dgp_ppl as dgp
from dgp_ppl import kernels, models
from dgp_ppl.inference import minimize

NAMES = ("frequency", "amplitude")


def simulator(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return (0.5 + theta[..., 1]) * np.sin(2 + 4 * (1 + theta[..., 0]) * x)


def emulate(key: Any, runs: int) -> dgp.prediction.Function:
    """Return the emulator of x and both parameters as a function."""
    u = qmc.LatinHypercube(3, rng=0).random(runs)
    scale = dgp.Standardizer.fit(u, y := simulator(u[:, 0], u[:, 1:]))
    rows = np.asarray(scale.inputs(u), float), np.asarray(scale.outputs(y), float)
    options: dict[str, Any] = {"depth": 1, "priors": False}
    fit = minimize(key, models.exact, None, *rows, progress=False, **options)
    p = dgp.predict(
        key, models.exact, None, fit.params, u[:1], given=rows, standardizer=scale, num_samples=1,
        **options,
    )  # fmt: skip
    return dgp.function(p)


def calibration(x: Any, y: Any = None, *, emulator: Any) -> None:
    theta = jnp.stack([numpyro.sample(n, dist.Uniform(0, 1)) for n in NAMES])
    f = emulator(jnp.column_stack([x, jnp.tile(theta, (len(x), 1))]))
    sd = numpyro.sample("discrepancy", dist.HalfNormal(0.3))
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.5))
    noise = numpyro.sample("noise", dist.HalfNormal(0.3))
    K = kernels.SquaredExponential(jnp.square(sd), lengthscale)(x[:, None], x[:, None])
    cov = K + jnp.diag(f.var + jnp.square(noise) + 1e-6)
    numpyro.sample("y", dist.MultivariateNormal(f.mean, cov), obs=y)


def simulate(seed: int, rows: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return controls, observations and the true parameters, all from the priors of the model."""
    rng = np.random.default_rng(seed)
    x, theta = np.linspace(0, 1, rows), rng.uniform(0, 1, 2)
    apart = (x[:, None] - x) / np.exp(rng.normal(-1, 0.5))
    sd, noise = 0.3 * np.abs(rng.normal(size=2))
    K = sd**2 * np.exp(-0.5 * apart**2) + noise**2 * np.eye(rows)
    return x, rng.multivariate_normal(simulator(x, theta), K), theta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    steps, inside = 10 if args.smoke else 500, []
    emulator = emulate(random.key(0), 60)
    for seed in range(args.sets):
        x, y, theta = simulate(seed)
        with jax.enable_x64(True):  # as the emulator
            chains = dgp.run_mcmc(
                random.key(seed), NUTS(calibration, target_accept_prob=0.9), x, y,
                emulator=emulator, num_warmup=steps, num_samples=steps, progress=False,
            )  # fmt: skip
        for name, true in zip(NAMES, theta, strict=True):
            low, high = np.quantile(chains.samples[name], [0.05, 0.95])
            inside.append(low <= true <= high)
            print(f"set {seed}: {name:9s} {true:.3f}  90 % interval [{low:.3f}, {high:.3f}]")
    print(f"{np.mean(inside):.0%} of {len(inside)} intervals hold the true value")


if __name__ == "__main__":
    main()
