"""The arguments that a model's layers and data are computed from."""

import jax.numpy as jnp
from support.layers import X, Y, Z, layer

from dgp_ppl import kernels
from dgp_ppl._partition import Call
from dgp_ppl.inference.guides._sources import sources
from dgp_ppl.inference.programs._handlers import survey


def test_sources():
    def model(x, y, z, scale):
        layer(x, y, z=z[1:], kernel=kernels.SquaredExponential(1.0, scale * len(x)))

    args = X, Y, Z
    kwargs = {"scale": jnp.ones(())}
    found = sources(model, Call(args, kwargs), survey(model, Call(args, kwargs)))
    assert found == ({"l1.v": {2, "scale"}}, {1})
