"""A guide's reference space."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from support.helpers import KEY
from support.tiny import TINY, X, Y, tiny

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.guides._transport import reference_log_joint, to_reference


def test_white_values_and_back():
    """`to_reference` inverts T, whatever the params."""
    guide, x, y = dgp.GlobalInducing(tiny, X), jnp.asarray(X, float), jnp.asarray(Y, float)
    params = {
        **TINY,
        "pseudo_inputs": jnp.asarray(X, float),
        "l2.v.target": jnp.ones((3, 1)),
        "l2.v.precision": jnp.full((3, 1), 2.0),
    }
    z = {"l1.v": jnp.full((1, 1), 0.7), "l2.v": jnp.full((1, 1), -1.2)}
    call = Call((x, y))
    guide.setup(x, y)
    v = reference_log_joint(guide, z, KEY, params, call, call)[1]
    assert abs(v["l2.v"] - z["l2.v"]) > 0.1
    back = to_reference(guide, v, params, call)
    for site, value in z.items():
        np.testing.assert_allclose(back[site], value, rtol=1e-5)


def test_a_guide_without_its_own_params():
    """Initial pseudo-inputs in the place of fitted ones would be another map."""
    guide, x, y = dgp.GlobalInducing(tiny, X), jnp.asarray(X, float), jnp.asarray(Y, float)
    rest = {"l2.v.target": jnp.ones((3, 1)), "l2.v.precision": jnp.full((3, 1), 2.0)}
    first = {n: a for n, a in TINY.items() if n.startswith("l1.v.")}
    program = dgp.transported(tiny, guide, first | rest)
    with pytest.raises(ValueError, match="transported: params has no 'pseudo_inputs'"):
        handlers.seed(program, KEY)(x, y)
