"""Sites, params and errors of `deep_gp`."""

import jax
import jax.numpy as jnp
import pytest
from numpyro import handlers
from support.helpers import KEY, regression, spread

import dgp_ppl as dgp
from dgp_ppl.models import deep_gp

pytestmark = pytest.mark.usefixtures("x64")


def test_deep_gp_wants_one_depth():
    x, y = regression()
    z = (spread(4), spread(4))
    with (
        handlers.seed(rng_seed=0),
        pytest.raises(ValueError, match=r"z has 2 layers, mean 1 and kernel 2"),
    ):
        deep_gp(x, y, z=z, mean=(dgp.means.zero,))
    with handlers.seed(rng_seed=0), pytest.raises(ValueError, match="at least one"):
        deep_gp(x, y, z=())


def test_sites_and_params_of_a_deep_gp():
    """A layer is as wide as the next layer's inducing inputs; means are padded."""
    x = jnp.zeros((7, 2))
    z = (jnp.zeros((4, 2)), jnp.zeros((5, 3)), jnp.zeros((6, 1)))

    def values(kind):
        sites = handlers.trace(handlers.seed(deep_gp, KEY)).get_trace(x, z=z, out=2)
        return {n: s["value"] for n, s in sites.items() if s["type"] == kind}

    def shapes(kind):
        return jax.tree.map(jnp.shape, jax.eval_shape(lambda: values(kind)))

    assert shapes("sample") == {
        "l1.v": (4, 3),
        "l2.v": (5, 1),
        "l3.v": (6, 2),
        "l1.eps": (7, 3),
        "l2.eps": (7, 1),
        "y": (7, 2),
    }
    assert shapes("param") == {
        **{"l1.z": (4, 2), "l1.variance": (), "l1.lengthscale": (2,)},
        **{"l2.z": (5, 3), "l2.variance": (), "l2.lengthscale": (3,)},
        **{"l3.z": (6, 1), "l3.variance": (), "l3.lengthscale": (1,)},
        "noise": (),
    }
