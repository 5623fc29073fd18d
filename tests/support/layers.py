"""A model of one layer with any kernel and inducing inputs."""

import numpy as np
import numpyro
import numpyro.distributions as dist
from support.helpers import regression

import dgp_ppl as dgp
from dgp_ppl import kernels

X, Y = (np.asarray(a) for a in regression(rows=12))
Z = np.linspace(-1, 1, 5)[:, None]


def layer(x, y, z=Z, kernel=None, **others):
    f = dgp.gp("l1", kernel or kernels.SquaredExponential(1.0, 1.0), z)
    with dgp.minibatch(x, y, *others.values()) as rows:
        observed = dgp.observe(f(rows[0]), lambda f: dist.Normal(f, 0.3))
        numpyro.sample("y", observed, obs=rows[1])
