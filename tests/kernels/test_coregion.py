"""The kernel over categories: correlations, params, errors; its formula is in the contract."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.distributions import constraints
from support.helpers import KEY

from dgp_ppl import kernels

W, KAPPA = np.array([[0.9, 0.2], [-0.4, 0.7], [0.0, 0.3]]), np.array([0.3, 0.8, 0.1])
B = W @ W.T + np.diag(KAPPA)


def test_a_normalised_covariance_has_correlations(x64):
    k = kernels.Coregion(W, KAPPA, normalised=True)
    sd = np.sqrt(np.diag(B))
    np.testing.assert_allclose(k.covariance, B / np.outer(sd, sd))
    eye = jnp.eye(3)
    np.testing.assert_allclose(k(eye), np.ones(3))
    np.testing.assert_allclose(k(eye, eye), k.covariance)
    phi = k.features(KEY, 20_000, 3)(eye)
    np.testing.assert_allclose(phi @ phi.T / 20_000, k.covariance, atol=0.04)  # 4 se


def registered(**options):
    with handlers.trace() as trace:
        kernel = kernels.Coregion.learned("k", 4, **options)
    return kernel, trace


def test_learned_starts_with_correlated_categories():
    kernel, trace = registered()
    np.testing.assert_allclose(kernel.covariance, 0.5 + 0.5 * np.eye(4), rtol=1e-6)
    assert list(trace) == ["k.W", "k.kappa"]
    assert trace["k.W"]["kwargs"]["constraint"] is constraints.real
    assert trace["k.kappa"]["kwargs"]["constraint"] is constraints.positive


@pytest.mark.wrong_types
def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"Coregion.learned got 'variance'.*\['W', 'kappa'\]"):
        registered(variance=1.0)
    with pytest.raises(ValueError, match=r"Coregion.learned: rank is 0"):
        registered(rank=0)
    labels = jnp.zeros((5, 1))
    for call in (lambda k: k(labels), lambda k: k(jnp.eye(3), labels)):
        with pytest.raises(ValueError, match=r"Coregion: .*1 columns.* 3 .*jax.nn.one_hot"):
            call(kernels.Coregion(W, KAPPA))
