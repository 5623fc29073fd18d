"""A guide's reference space."""

import jax.numpy as jnp
import pytest
from numpyro import handlers
from support.helpers import KEY
from support.tiny import TINY, X, Y, tiny

import dgp_ppl as dgp


def test_a_guide_without_its_own_params():
    """Initial pseudo-inputs in the place of fitted ones would be another map."""
    guide, x, y = dgp.GlobalInducing(tiny, X), jnp.asarray(X, float), jnp.asarray(Y, float)
    rest = {"l2.v.target": jnp.ones((3, 1)), "l2.v.precision": jnp.full((3, 1), 2.0)}
    first = {n: a for n, a in TINY.items() if n.startswith("l1.v.")}
    program = dgp.transported(tiny, guide, first | rest)
    with pytest.raises(ValueError, match="transported: params has no 'pseudo_inputs'"):
        handlers.seed(program, KEY)(x, y)
