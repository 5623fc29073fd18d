"""Modules whose arrays are params."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from support.helpers import KEY

from dgp_ppl.inference.guides._modules import is_maker, module_params


def declared(module, key=KEY, **options):
    with handlers.trace() as trace, handlers.seed(rng_seed=key):
        learned, static = module_params("Guide: net", module, "net", **options)
    return {n: s["value"] for n, s in trace.items()}, eqx.combine(learned, static)


def test_a_maker_and_a_module():
    """A maker starts from the key of the run; a module from its own arrays."""
    make = lambda key: eqx.nn.Linear(2, 3, key=key)  # noqa: E731
    values, net = declared(make)
    assert {n: a.shape for n, a in values.items()} == {"net.weight": (3, 2), "net.bias": (3,)}
    np.testing.assert_array_equal(
        net(jnp.ones(2)), values["net.weight"].sum(1) + values["net.bias"]
    )
    others, _ = declared(make, random.key(1))
    assert (others["net.weight"] != values["net.weight"]).all()
    own, _ = declared(net, made=True)
    np.testing.assert_array_equal(own["net.weight"], net.weight)


def test_arrays_that_cannot_be_learned():
    with pytest.raises(TypeError, match=r"Guide: net has arrays of \['int32'\], which cannot be"):
        declared({"a": jnp.arange(3)}, made=True)


def test_makers_have_a_required_key():
    assert is_maker(lambda size, key: None)
    assert not is_maker(lambda x, key=None: None)
    assert not is_maker(jax.nn.relu)
    assert not is_maker(3)
