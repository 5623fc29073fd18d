"""Guides with arrays of the same shapes share a compiled program."""

import jax
import numpy as np
import pytest
from support.helpers import KEY, regression

import dgp_ppl as dgp
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.svi._loop import _training_loop, losses_of
from dgp_ppl.models import deep_gp
from dgp_ppl.prediction._passes import predictive_passes

Z = (np.linspace(-2, 2, 5)[:, None],) * 2
X, Y = (np.asarray(a) for a in regression(rows=24))
X_TEST = np.linspace(-2, 2, 7)[:, None]

ARRAYS = {  # functions from inputs and targets to guides that hold arrays
    "global_inducing": lambda x, y: dgp.GlobalInducing(deep_gp, x[:4]),
    "decoupled": lambda x, y: dgp.Decoupled(deep_gp, x[:6]),
    "flow": lambda x, y: dgp.Flow(deep_gp, base=dgp.GlobalInducing(deep_gp, x[:4])),
    "informed": lambda x, y: dgp.Diffusion(
        deep_gp, steps=2, base=dgp.GlobalInducing(deep_gp, x[:4]), informed=(x, y)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["global_inducing", "decoupled", "flow", "informed"])
def test_guides_with_other_arrays_share_a_program(name):
    """A second guide runs the first one's programs, with its own arrays."""

    def results(rows):
        x, y = X[rows], Y[rows]
        guide = ARRAYS[name](x, y)
        result = dgp.fit(KEY, deep_gp, guide, x, y, z=Z, steps=3, progress=False)
        bound = evaluate(KEY, deep_gp, guide, result.params, x, y, z=Z, num_draws=2)
        mean = dgp.predict(KEY, deep_gp, guide, result.params, X_TEST, z=Z, num_samples=3).mean
        return np.concatenate([result.losses, bound, mean])

    programs = losses_of._mapped, predictive_passes
    count = lambda: (_training_loop.cache_info().misses, *(p._cache_size() for p in programs))  # noqa: E731
    first = results(slice(0, 12))
    compiled = count()
    second = results(slice(12, 24))
    assert count() == compiled
    assert np.abs(second - first).max() > 1e-3
    _training_loop.cache_clear()
    jax.clear_caches()
    np.testing.assert_allclose(results(slice(12, 24)), second, rtol=1e-5)
