"""A model whose hidden layer has two outputs."""

import numpy as np
import numpyro
import numpyro.distributions as dist

import dgp_ppl as dgp
from dgp_ppl import kernels

Z = np.float32([[-1.0], [0.0], [1.0]])


def model(x, y=None):
    """Two layers, with two outputs and one output."""
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)
