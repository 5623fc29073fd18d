"""Importance sampling from a diffusion guide."""

from functools import partial

import numpyro.distributions as dist
import pytest
from support.helpers import KEY, exact_evidence, one_layer, regression, start

import dgp_ppl as dgp


def test_the_evidence_of_a_conjugate_model():
    """The estimate is right within its error, from paths whose bound is more than a nat lower."""
    x, y = regression(rows=3)
    model = partial(one_layer, z=x, likelihood=lambda f: dist.Normal(f, 1.0))
    guide = dgp.Diffusion(model, steps=2)
    params = start(model, guide, x, y)
    found = dgp.importance_evidence(KEY, model, guide, params, x, y, num_paths=4000)
    truth = exact_evidence(x, y, noise=1.0)
    assert found.elbo < truth - 0.5
    assert 0 < found.standard_error < 0.05
    assert abs(found.log_evidence - truth) < 4 * found.standard_error
    few = partial(one_layer, z=x, likelihood=lambda f: dist.Normal(f, 0.05))
    with pytest.warns(UserWarning, match=r"50 paths are worth [0-9.]+, so the error is rough"):
        dgp.importance_evidence(KEY, few, dgp.Diffusion(few, steps=2), params, x, y, num_paths=50)
