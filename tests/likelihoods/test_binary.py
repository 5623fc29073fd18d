"""`BernoulliProbit` against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from support.helpers import KEY, assert_mean

from dgp_ppl.likelihoods import BernoulliProbit


def test_probit_is_stable_in_both_tails():
    f = jnp.array([-30.0, -1.0, 0.0, 5.0])
    distribution = BernoulliProbit(f)
    for y, exact in ((jnp.ones(4), stats.norm.logcdf(f)), (jnp.zeros(4), stats.norm.logsf(f))):
        np.testing.assert_allclose(distribution.log_prob(y), exact, rtol=1e-4, atol=1e-7)
    variance = stats.norm.cdf(f) * stats.norm.sf(f)
    np.testing.assert_allclose(distribution.variance, variance, rtol=1e-4, atol=1e-30)
    gradient = jax.grad(lambda f: BernoulliProbit(f).log_prob(jnp.ones(4)).sum())(f)
    assert np.isfinite(gradient).all()
    assert_mean(distribution.sample(KEY, (20_000,)), stats.norm.cdf(f))
