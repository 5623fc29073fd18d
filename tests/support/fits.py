"""Short fits of the library's own models, which share compiled programs."""

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
