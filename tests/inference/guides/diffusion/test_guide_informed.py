"""Diffusion guides whose score includes the gradient of the target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.util import log_density
from support.diffusion import Z, shaken
from support.helpers import (
    KEY,
    one_layer,
    regression,
    start,
)

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.inference.guides.diffusion._guide import Diffusion


@pytest.mark.slow
def test_informed_steps_know_the_gradient(x64):
    """On a conjugate layer the gradient of log p(y, T(z)) |T'| / N(z) is known."""
    x, y = regression(rows=6)
    base = dgp.MeanField(one_layer, covariance="diagonal")
    guide = Diffusion(one_layer, steps=2, base=base, informed=(x, y))
    params = shaken(start(one_layer, guide, x, y, z=Z))
    m, s = params["l1.v.loc"], params["l1.v.scale"]
    assert params["diffusion.informed"].shape == (2,)

    def ask(z):
        with handlers.block(), handlers.seed(rng_seed=KEY), handlers.substitute(data=params):
            guide.setup(x, y, z=Z)
            unravel = lambda a: {"l1.v": a[:, None]}  # noqa: E731
            return guide._target_gradient(KEY, unravel, Call((x, y), {"z": Z}))(z)

    def log_ratio(z):
        v = m + s * z[:, None]
        drawn = {"l1.v": guide_site("l1.v", Handover(), v)}
        program = handlers.replay(one_layer, drawn)
        return log_density(program, (x, y), {"z": Z}, {})[0] + 0.5 * jnp.sum(z**2)

    ask, gradient = jax.jit(ask), jax.jit(jax.grad(log_ratio))
    near = random.normal(KEY, (5,))
    for z, capped in ((near, False), (5 * near, True)):
        truth = gradient(z)
        norm = jnp.linalg.norm(truth)
        assert (norm > 30) == capped
        np.testing.assert_allclose(ask(z), truth * jnp.minimum(1, 30 / norm), rtol=1e-9)
    assert (jax.jacobian(ask)(near) == 0).all()
