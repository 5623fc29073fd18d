"""Likelihoods that compute their expectations, and leave some to quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from support import integrals

import dgp_ppl as dgp
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import AnalyticLikelihood, BernoulliProbit


@pytest.mark.slow
def test_a_bound_that_is_left_to_quadrature_follows_the_likelihood():
    """20 Gauss-Hermite nodes miss 6 nats at a variance of 10,000."""
    mean, var, y = (
        jnp.array([100.0, -30.0, 0.5]), jnp.array([1e4, 1e3, 1.0]), jnp.array([1, 0, 1])
    )  # fmt: skip
    found = dgp.observe(Marginals(mean[:, None], var[:, None], True), BernoulliProbit).log_prob(y)
    for i, (m, v, target) in enumerate(zip(*map(np.asarray, (mean, var, y)), strict=True)):
        log_p = lambda f, y=target: special.log_ndtr(f if y else -f)  # noqa: E731
        exact = integrals.expectation(log_p, float(m), np.sqrt(float(v)), (0.0,))
        assert abs(found[i] - exact) < 1e-4 * max(1, abs(exact))


def test_closed_forms_come_first():
    class Constant(BernoulliProbit):
        def expected_log_prob(self, var, value, num_nodes):
            return jnp.full(self.batch_shape, -7.0)

    assert issubclass(Constant, AnalyticLikelihood)
    marginals = Marginals(jnp.zeros((2, 1)), jnp.ones((2, 1)), True)
    assert dgp.observe(marginals, Constant).log_prob(jnp.ones(2)).tolist() == [-7.0, -7.0]
