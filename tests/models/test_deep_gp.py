"""Sites, params and errors of `deep_gp`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from support.helpers import KEY, spread

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.models import deep_gp

pytestmark = pytest.mark.usefixtures("x64")


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
        **{"l1.z": (4, 2), "l1.variance": (3,), "l1.lengthscale": (3, 2)},
        **{"l2.z": (5, 3), "l2.variance": (), "l2.lengthscale": (3,)},
        **{"l3.z": (6, 1), "l3.variance": (), "l3.lengthscale": (1,)},
        "noise": (),
    }


def kernel_shapes(dim, width, M=4, **options):
    """Return the shapes of the params of the hidden layer's kernel."""

    def params():
        z = (jnp.zeros((M, dim)), jnp.zeros((M, width)))
        sites = handlers.trace(handlers.seed(deep_gp, KEY)).get_trace(
            jnp.zeros((3, dim)), z=z, **options
        )
        return {n: s["value"] for n, s in sites.items() if s["type"] == "param"}

    shapes = jax.tree.map(jnp.shape, jax.eval_shape(params))
    return shapes["l1.variance"], shapes["l1.lengthscale"]


def by_hand(name, dim):
    return kernels.Matern32.learned(name, dim)


def passed_on(name, dim, **options):
    return kernels.Matern32.learned(name, dim, **options)


def test_outputs_of_a_hidden_layer_have_their_own_kernels():
    for dim, width, options, shapes in (
        (2, 3, {}, ((3,), (3, 2))),
        (2, 3, {"share_kernel": True}, ((), (2,))),
        (2, 1, {}, ((), (2,))),  # one output has nothing to share
        (64, 2, {}, ((2,), (2, 64))),
        (65, 2, {}, ((), (65,))),  # wide: more than 64 inputs, and more than inducing inputs
        (65, 2, {"share_kernel": False}, ((2,), (2, 65))),
        (65, 2, {"M": 65}, ((2,), (2, 65))),
        (2, 3, {"kernel": kernels.Matern32.learned}, ((3,), (3, 2))),
        (2, 3, {"kernel": by_hand}, ((), (2,))),
        (2, 3, {"kernel": passed_on}, ((3,), (3, 2))),
        (2, 3, {"kernel": (kernels.Matern32.learned, by_hand)}, ((3,), (3, 2))),
    ):
        assert kernel_shapes(dim, width, **options) == shapes, (dim, width, options)


def with_variance(name, dim, *, out=None, variance=1.0):
    return kernels.Matern32.learned(name, dim, out=out, variance=variance)


def without_variance(name, dim, *, out=None):
    return kernels.Matern32.learned(name, dim, out=out)


def test_hidden_layers_start_near_their_mean_function():
    x, z = jnp.zeros((3, 2)), (jnp.zeros((4, 2)),) * 3
    for kernel, hidden, share_kernel in (
        (kernels.SquaredExponential.learned, 0.1, None),
        (kernels.SquaredExponential.learned, 0.1, True),
        (passed_on, 1.0, None),
        (with_variance, 0.1, None),
        (partial(kernels.Matern32.learned, lengthscale=3.0), 0.1, None),
        (partial(kernels.Matern32.learned, variance=2.0), 2.0, True),
        (without_variance, 1.0, None),
    ):
        program = handlers.trace(handlers.seed(deep_gp, KEY))
        sites = program.get_trace(x, z=z, kernel=kernel, share_kernel=share_kernel)
        last = 2.0 if hidden == 2.0 else 1.0
        for name, variance in (("l1", hidden), ("l2", hidden), ("l3", last)):
            np.testing.assert_allclose(sites[f"{name}.variance"]["value"], variance, rtol=1e-6)


@pytest.mark.wrong_types
def test_errors():
    x, z = jnp.zeros((3, 1)), (spread(4), spread(4))
    for error, message, call in (
        (TypeError, r"by_hand.* does not take out; wanted .*Matern52",
         lambda: kernel_shapes(2, 3, kernel=by_hand, share_kernel=False)),
        (TypeError, "share_kernel is 'no', wanted True, False or None",
         lambda: kernel_shapes(2, 3, share_kernel="no")),
        (ValueError, "z has 2 layers, mean 1 and kernel 2",
         lambda: deep_gp(x, z=z, mean=(dgp.means.zero,))),
        (ValueError, "z is tuple", lambda: deep_gp(x, z=())),
    ):  # fmt: skip
        with handlers.seed(rng_seed=0), pytest.raises(error, match=message):
            call()
