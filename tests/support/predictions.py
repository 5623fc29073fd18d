"""Predictions of a deep GP, and their components."""

import jax.numpy as jnp
import numpy as np
from support.helpers import KEY, spread, two_layer_params

import dgp_ppl as dgp
from dgp_ppl.models import deep_gp, svgp

X_TEST = np.linspace(-2.5, 2.5, 7)[:, None]
Y_TEST = np.sin(2 * X_TEST[:, 0])
SHALLOW, DEEP = dgp.MeanField(svgp), dgp.MeanField(deep_gp)
KERNEL = {"l1.variance": 1.5, "l1.lengthscale": jnp.array([0.8])}


def deep(key=KEY, x=X_TEST, **options):
    z = (spread(5), spread(5))
    options = {"num_samples": 50} | options
    return dgp.predict(key, deep_gp, DEEP, two_layer_params(), x, z=z, **options)


def components(p):
    """Means and standard deviations of all passes, [S, N]."""
    parts = [
        (m.components.loc[:, 0, : rows.stop - rows.start], m.components.scale[:, 0])
        for rows, m in p.components()
    ]
    loc = np.concatenate([a for a, _ in parts], axis=1, dtype=np.float64)
    scale = np.concatenate([b for _, b in parts], axis=1, dtype=np.float64)[:, : loc.shape[1]]
    return loc, scale
