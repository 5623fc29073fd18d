"""Short fits of the library's own models, which share compiled programs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from support.helpers import KEY, regression

import dgp_ppl as dgp
from dgp_ppl.models import deep_gp, svgp

# A second fit of the library's own models with the same shapes compiles nothing.
X, Y = regression()
Z = X[:6]
DEEP, SHALLOW = dgp.MeanField(deep_gp), dgp.MeanField(svgp)
OPTIMIZER = optax.adam(0.03)


def shallow(steps=10, key=KEY, **options):
    options = {"optimizer": OPTIMIZER} | options
    return dgp.fit(key, svgp, SHALLOW, X, Y, z=Z, steps=steps, progress=False, **options)


def descending(w):
    """A loss that is NaN below w = -0.05; gradient descent lowers w by 0.1 per step."""
    w = numpyro.param("w", w)
    numpyro.factor("f", -w + 1e-6 * jnp.log(w + 0.05))


def assert_same(a, b):
    """Assert that losses, params and places in the rows of two fits are equal, to the bit."""
    parts = [(f.losses, dict(f.params), f.position) for f in (a, b)]
    jax.tree.map(np.testing.assert_array_equal, *parts)
