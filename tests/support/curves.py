"""Data for latent-variable models."""

import jax.numpy as jnp
import numpy as np


def curve(rows=60, noise=0.1):
    """Two distant curves in four dimensions: rows, positions on the curve, and which curve."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-1.5, 1.5, rows)
    side = np.arange(rows) % 2
    y = np.stack([t, t**2 - 1, np.sin(3 * t), 3.0 * side - 1.5], axis=1)
    y = y + noise * rng.standard_normal(y.shape)
    return jnp.asarray(y, float), t, side
