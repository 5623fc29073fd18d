"""Mixtures against sums over their components, in SciPy."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from support.helpers import KEY, assert_mean

from dgp_ppl.likelihoods._mixture import Mixture

WEIGHTS = np.array([0.2, 0.5, 0.3])
LOC = np.array([[-1.0, 0.0], [0.5, 2.0], [3.0, -2.0]])
SCALE = np.array([[0.3, 1.0], [0.5, 0.2], [1.0, 0.4]])
Y = np.array([0.2, 1.5])


@pytest.fixture
def mixture(x64):
    return Mixture(jnp.log(WEIGHTS), dist.Normal(jnp.asarray(LOC), jnp.asarray(SCALE)))


def test_moments(mixture):
    mean = WEIGHTS @ LOC
    np.testing.assert_allclose(mixture.mean, mean)
    np.testing.assert_allclose(mixture.variance, WEIGHTS @ (SCALE**2 + LOC**2) - mean**2)


def test_density_and_distribution_function(mixture):
    parts = stats.norm(LOC, SCALE)
    np.testing.assert_allclose(mixture.log_prob(Y), np.log(WEIGHTS @ parts.pdf(Y)))
    np.testing.assert_allclose(mixture.cdf(Y), WEIGHTS @ parts.cdf(Y))


def test_density_far_out_is_finite(mixture):
    assert np.isfinite(mixture.log_prob(1e3 * Y)).all()


def test_rows_pick_their_components_independently(mixture):
    rows = 4000
    wide = Mixture(
        mixture.log_weights, dist.Normal(jnp.tile(LOC[:, :1], rows), jnp.tile(SCALE[:, :1], rows))
    )
    draws = wide.sample(KEY)
    assert draws.shape == (rows,)
    assert_mean(draws, mixture.mean[0])
    assert_mean((draws - mixture.mean[0]) ** 2, mixture.variance[0])


def test_entries_of_a_row_share_their_component(x64):
    """The density of a row is a mixture of products, and the cdf is of each entry."""
    joint = Mixture(jnp.log(WEIGHTS), dist.Normal(LOC[:, None], SCALE[:, None]).to_event(1))
    parts = stats.norm(LOC, SCALE)
    wanted = np.log(WEIGHTS @ np.prod(parts.pdf(Y), axis=1))
    np.testing.assert_allclose(joint.log_prob(Y[None]), [wanted])
    np.testing.assert_allclose(joint.cdf(Y[None]), [WEIGHTS @ parts.cdf(Y)])
    assert joint.support is dist.constraints.real
