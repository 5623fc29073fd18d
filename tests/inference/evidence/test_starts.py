"""Annealing from the prior, and from a guide whose q(v) is not Gaussian."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KEY, exact_evidence, one_layer, regression, slow
from support.tiny import TINY, X, Y, annealed, assert_evidence, tiny, tiny_evidence

import dgp_ppl as dgp
from dgp_ppl.inference.evidence._annealing import annealed_evidence

QUIET: dict[str, Any] = {"progress": False}


@pytest.mark.slow
def test_from_an_implicit_fit():
    """Particles start from the Gaussian with the moments of its draws."""
    x, y = regression(rows=20)
    guide = dgp.Implicit(one_layer, noise_dim=2)
    params = dgp.fit(KEY, one_layer, guide, x, y, z=x, steps=60, **QUIET).params
    found = annealed_evidence(
        KEY, one_layer, guide, params, x, y, z=x, temperatures=100, num_particles=16, **QUIET
    )
    assert abs(found.log_evidence - exact_evidence(x, y)) < 4 * found.standard_error + 2e-3
    assert found.standard_error < 0.3


@pytest.mark.parametrize("target", [slow("bound"), "model"])
def test_from_the_prior(target):
    """The guide's q(v) does not matter."""
    far = TINY | {"l1.v.loc": jnp.full((1, 1), 30.0), "l2.v.loc": jnp.full((1, 1), np.nan)}
    found = annealed(
        tiny, dgp.MeanField(tiny), far, X, Y, target=target, start="prior", temperatures=100,
        num_particles=64, num_noise=32,
    )  # fmt: skip
    assert_evidence(found, tiny_evidence(bound=target == "bound"))
