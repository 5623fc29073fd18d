"""What guides of layers require: layers, and a set-up before questions."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import dgp_ppl as dgp


def test_a_model_without_layers():
    def plain(x):
        numpyro.sample("w", dist.Normal())

    with pytest.raises(ValueError, match=r"no dgp_ppl\.gp layer.*\['w'\]"):
        dgp.MeanField(plain).setup(jnp.zeros(3))
