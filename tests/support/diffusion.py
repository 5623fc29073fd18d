"""Bases, params and scores for the tests of guides on a base."""

import jax.numpy as jnp
import numpy as np
from support.helpers import KEY, exact_evidence, one_layer, spread

import dgp_ppl as dgp
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.guides._global_inducing import GlobalInducing

Z = spread(5)


def bases(model):
    return {
        "mean-field": dgp.MeanField(model, hidden_scale=0.3),
        "diagonal": dgp.MeanField(model, covariance="diagonal", hidden_scale=0.3),
        "global": GlobalInducing(model, Z, hidden_scale=0.3, precision=1.0),
    }


def shaken(params, scale=0.3, seed=0):
    """Return params moved away from their initial values, but still valid."""
    rng = np.random.default_rng(seed)
    moved = {}
    for n, a in params.items():
        noise = jnp.asarray(rng.standard_normal(jnp.shape(a)), a.dtype)
        positive = n.endswith(
            ("variance", "scale", "precision", "lengthscale", "noise", "informed")
        )
        if n.endswith("scale_tril"):
            moved[n] = a + scale * jnp.tril(noise, -1) * a[..., :1, :1]
        else:
            moved[n] = a * jnp.exp(scale * noise) if positive else a + scale * noise
    return moved


def diagonal_fit(x, y):
    """Fit a diagonal Gaussian to one layer; returns guide, fit, log evidence and gap."""
    guide = dgp.MeanField(one_layer, covariance="diagonal")
    first = dgp.fit(
        KEY, one_layer, guide, x, y, z=x, steps=1000, learning_rate=0.03, progress=False
    )
    truth = exact_evidence(x, y)
    return guide, first, truth, truth - evaluate(KEY, one_layer, guide, first.params, x, y, z=x)[0]


def wavy(layers, key):
    """Return a score network without params."""
    return lambda t, z: {n: jnp.sin(2 * a + t) for n, a in z.items()}
