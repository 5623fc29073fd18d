"""Predictions as pure functions of a row."""

import jax
import jax.numpy as jnp
import numpy as np
from support.fits import SHALLOW, X, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.models import svgp
from dgp_ppl.prediction._row_function import row_function


def test_it_can_be_mapped_compiled_and_differentiated():
    params = shallow().params
    p = dgp.predict(KEY, svgp, SHALLOW, params, X[:1], z=Z, num_samples=3)
    function = row_function(p, [])
    found = jax.jit(jax.vmap(function))(X[:3])
    one = [
        dgp.predict(KEY, svgp, SHALLOW, params, X[i : i + 1], z=Z, num_samples=3) for i in range(3)
    ]
    np.testing.assert_allclose(found["mean"], [q.mean[0] for q in one], atol=1e-5)
    np.testing.assert_allclose(found["var"], [q.var[0] for q in one], atol=1e-5)
    assert "quantiles" not in found
    mean = lambda x: function(x)["mean"]  # noqa: E731
    step = 1e-2
    slope = (mean(X[0] + step) - mean(X[0] - step)) / (2 * step)
    np.testing.assert_allclose(jnp.sum(jax.grad(mean)(X[0])), slope, rtol=0.05, atol=1e-2)
