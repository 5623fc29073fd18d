"""Fit counts with an exposure, with priors on the hyperparameters.

The data are counts of events at N places, each watched for a different time. The log rate is a GP.
Given rate and exposure the counts are negative binomial, which takes one line. `handlers.lift`
turns params into sample sites with priors, and `MeanField` then infers their posteriors too.

    python examples/counts_and_priors.py [--steps 3000] [--smoke]
"""

import argparse
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro import handlers

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods


def model(x: Any, exposure: Any, counts: Any = None, *, z: Any) -> None:
    concentration = numpyro.param("concentration", 5.0, constraint=dist.constraints.positive)
    offset = numpyro.param("offset", 0.0)
    f = dgp.gp("rate", kernels.Matern52.learned("rate", 1), z)
    with dgp.minibatch(x, exposure, counts) as (x, exposure, counts):

        def likelihood(f: Any) -> dist.Distribution:
            return likelihoods.NegativeBinomialLog(f + jnp.log(exposure) + offset, concentration)

        numpyro.sample("y", dgp.observe(f(x), likelihood), obs=counts)


PRIORS = {
    "rate.variance": dist.LogNormal(0.0, 0.5),
    "rate.lengthscale": dist.LogNormal(-1.0, 0.5).expand([1]).to_event(1),
    "concentration": dist.LogNormal(1.5, 0.5),
    "offset": dist.Normal(0.0, 2.0),
}


def simulate(rows: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-1, 1, rows))
    exposure = rng.uniform(1, 5, rows)
    rate = np.exp(1 + np.sin(4 * x))
    counts = rng.poisson(exposure * rate * rng.gamma(8, 1 / 8, rows))
    return x[:, None], exposure, counts, rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    steps, rows = (5, 20) if args.smoke else (args.steps, args.rows)
    key_fit, key_posterior, key_predict = random.split(random.key(args.seed), 3)

    x, exposure, counts, rate = simulate(rows, args.seed)
    z = np.linspace(-1, 1, 15)[:, None]
    lifted = handlers.lift(model, prior=PRIORS)
    guide = dgp.MeanField(lifted)
    result = dgp.fit(key_fit, lifted, guide, x, exposure, counts, z=z, steps=steps)
    print(f"ELBO per datum {result.elbo_per_datum[-steps // 10 :].mean():.3f}")

    draws = guide.sample_posterior(
        key_posterior, result.params, x, exposure, counts, z=z, sample_shape=(500,)
    )
    for name in PRIORS:
        values = np.asarray(draws[name]).reshape(500, -1)[:, 0]
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        print(f"{name:17s} {middle:6.3f}  90 % interval [{low:.3f}, {high:.3f}]")

    # The counts of one unit of time.
    passes = 10 if args.smoke else 100
    p = dgp.predict(
        key_predict, lifted, guide, result.params, x, np.ones(rows), z=z, num_samples=passes
    )
    lower, upper = p.interval(0.9)
    print(f"mean absolute error of the rate {np.abs(p.mean - rate).mean():.3f}")
    print(
        f"90 % intervals of one unit's count hold {np.mean((lower <= rate) & (rate <= upper)):.0%}"
    )


if __name__ == "__main__":
    main()
