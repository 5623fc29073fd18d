"""Fit three models that `compare` does not offer: skip connections, a deep kernel, latent inputs.

On small data the network of a deep kernel overfits; the other two stay close to a deep GP.
"""

import sys

import equinox as eqx
import jax
import numpy as np
from jax import random
from numpyro import handlers
from numpyro.contrib.module import eqx_module

import dgp_ppl as dgp
from dgp_ppl import initialize, models

INDUCING = 15


def data(seed, num):
    """Return inputs, [N, 2], and noisy targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (num, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=num)


def features(name):
    """Make the map of a deep kernel: a network, whose weights are params of the model."""
    net = eqx.nn.MLP(2, 3, 32, 2, key=random.key(0))
    return jax.vmap(eqx_module(name, net))  # pyright: ignore[reportArgumentType] - a module


def main():
    steps = 10 if "--smoke" in sys.argv else 1000
    x, y = data(0, 200)
    scale = dgp.Standardizer.fit(x, y)
    inputs, outputs = scale.inputs(x), scale.outputs(y)

    skip = initialize.deep_gp(random.key(1), inputs, num_inducing=INDUCING, depth=2, skip=True)
    with handlers.block():  # the initial map, outside of a model
        mapped = features("features")(inputs)
    deep_kernel = initialize.deep_gp(random.key(1), mapped, num_inducing=INDUCING, depth=1)
    latent, start = initialize.gplvm(
        random.key(1), outputs, 1, x=inputs, num_inducing=INDUCING, depth=2
    )
    for label, model, kwargs, first in (
        ("skip connections", models.deep_gp, skip, {}),
        ("deep kernel", models.deep_gp, deep_kernel | {"features": features}, {}),
        ("latent input", models.gplvm, latent, start),
    ):
        guide = dgp.MeanField(model)
        fit = dgp.fit(
            random.key(2), model, guide, inputs, outputs, steps=steps, start=first,
            progress=False, **kwargs,
        )  # fmt: skip
        x_new, y_new = data(1, 1000)
        p = dgp.predict(
            random.key(3), model, guide, fit.params, x_new, standardizer=scale, **kwargs
        )
        print(f"{label}: mean log density {p.log_prob(y_new).mean():.2f}")


if __name__ == "__main__":
    main()
