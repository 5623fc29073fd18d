"""Fit one deep GP with every guide; print the bound, the held-out metrics and the time of each.

The model is a plain NumPyro function. Only the guide changes from row to row.

    python examples/every_posterior.py [--steps 3000]
"""

import argparse
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

import dgp_ppl as dgp
from dgp_ppl import kernels, means
from dgp_ppl.inference import evaluate
from dgp_ppl.metrics import mean_log_density, rmse


def model(x: Any, y: Any = None, *, z: Any, batch_size: int | None = None) -> None:
    """A deep GP of two layers, for a function with a jump."""
    noise = numpyro.param("noise", 0.2, constraint=dist.constraints.positive)
    z1: Any = numpyro.param("l1.z", z)
    z2: Any = numpyro.param("l2.z", z)
    kernel = kernels.SquaredExponential.learned
    f1 = dgp.gp("l1", kernel("l1", 1), z1, mean=means.identity)
    f2 = dgp.gp("l2", kernel("l2", 1), z2)
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)


def step(key: Any, rows: int) -> tuple[Any, Any]:
    """Draw noisy values of a step function."""
    key_x, key_y = random.split(key)
    x = random.uniform(key_x, (rows, 1), minval=-1.7, maxval=1.7)
    return x, jnp.sign(x[:, 0] - 0.2) + 0.1 * random.normal(key_y, (rows,))


def posteriors(z: Any, x: Any, y: Any, steps: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield each guide with its fit. The coupled ones start from the mean-field fit."""
    key_fit, key_start = random.split(random.key(1))

    def fit(guide: Any, **options: Any) -> Any:
        options = {"steps": steps, "progress": False, **options}
        return dgp.fit(key_fit, model, guide, x, y, z=z, **options)

    mean_field = dgp.MeanField(model)
    first = fit(mean_field)
    yield "mean field", mean_field, first
    decoupled = dgp.Decoupled(model, z_mean=[x[::2], x[::2]])
    yield "decoupled", decoupled, fit(decoupled)
    coupled = dgp.GlobalInducing(model, pseudo_inputs=x[::4])
    start = coupled.start_from(key_start, mean_field, first.params, x, y, z=z)
    second = fit(coupled, start=start)
    yield "global inducing", coupled, second
    diffusion = dgp.Diffusion(model, steps=8, base=coupled)
    yield "diffusion", diffusion, fit(diffusion, start=second.params)
    implicit = dgp.Implicit(model)
    yield "implicit", implicit, fit(implicit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--smoke", action="store_true", help="a few steps only")
    args = parser.parse_args()
    steps, rows = (4, 20) if args.smoke else (args.steps, 80)
    x, y = step(random.key(0), rows)
    x_test, y_test = (np.asarray(a) for a in step(random.key(2), 200))
    z = jnp.linspace(-2, 2, 10)[:, None]
    print(f"{'posterior':16s}{'ELBO/datum':>12s}{'RMSE':>8s}{'log density':>13s}{'seconds':>9s}")
    for name, guide, result in posteriors(z, x, y, steps):
        elbo, _ = evaluate(random.key(3), model, guide, result.params, x, y, z=z, num_draws=200)
        p = dgp.predict(random.key(4), model, guide, result.params, x_test, z=z)
        scores = rmse(y_test, p.mean), mean_log_density(p.log_prob(y_test))
        row = f"{elbo / rows:12.3f}{scores[0]:8.3f}{scores[1]:13.3f}{result.seconds:9.1f}"
        print(f"{name:16s}{row}", flush=True)


if __name__ == "__main__":
    main()
