"""The normal log density against NumPyro's."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from dgp_ppl.linalg._density import normal_log_density


def test_value_and_gradient_are_numpyros(x64):
    rng = np.random.default_rng(0)
    A, y = jnp.asarray(rng.normal(size=(70, 80))), jnp.asarray(rng.normal(size=70))
    mine, numpyros = (
        jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(A @ A.T, y)
        for f in (
            normal_log_density,
            lambda K, y: dist.MultivariateNormal(jnp.zeros(70), K).log_prob(y),
        )
    )
    symmetric = lambda pair: (pair[0] + pair[0].T, pair[1])  # noqa: E731
    np.testing.assert_allclose(mine[0], numpyros[0], rtol=1e-12)
    for a, b in zip(symmetric(mine[1]), symmetric(numpyros[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


def test_a_covariance_without_a_factor_gives_nan():
    assert np.isnan(normal_log_density(-jnp.eye(2), jnp.ones(2)))
