"""Gaussian posteriors of inducing values: density, KL, draws, projections; Cholesky factors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from numpyro.distributions.kl import kl_divergence
from support.helpers import KEY, assert_covariance, assert_mean

from dgp_ppl.core._inducing import (
    DiagonalInducing,
    FullInducing,
    SharedInducing,
    cholesky_factor,
    project,
)

M, P = 4, 2
pytestmark = pytest.mark.usefixtures("x64")


def posterior(covariance):
    """Return a Gaussian over [M, P], its mean, and its covariance [P, M, M]."""
    rng = np.random.default_rng(0)
    loc, scale = rng.standard_normal((M, P)), rng.uniform(0.2, 1.5, (M, P))
    if covariance == "diagonal":
        dense = np.stack([np.diag(s**2) for s in scale.T])
        return DiagonalInducing(jnp.asarray(loc), jnp.asarray(scale)), loc, dense
    tril = np.tril(rng.standard_normal((P, M, M)), -1) + np.stack([np.diag(s) for s in scale.T])
    if covariance == "shared":
        tril = np.stack([tril[0]] * P)
    dense = tril @ tril.transpose(0, 2, 1)
    if covariance == "shared":
        return SharedInducing(jnp.asarray(loc), jnp.asarray(tril[0])), loc, dense
    return FullInducing(jnp.asarray(loc), jnp.asarray(tril)), loc, dense


@pytest.fixture(params=["full", "diagonal", "shared"])
def case(request, x64):
    return posterior(request.param)


def prior(shape=(M, P)):
    return dist.Normal(0, 1).expand(shape).to_event(2)


@jax.jit
def kl_to_prior(q):
    return kl_divergence(q, prior())


@jax.jit
def of_multivariate_normals(loc, dense, v):
    """Return the KL to the prior, and the log density, of NumPyro's multivariate normals."""
    normals = dist.MultivariateNormal(loc.T, dense)
    standard = dist.MultivariateNormal(jnp.zeros((P, M)), jnp.eye(M))
    with jax.numpy_rank_promotion("allow"):  # NumPyro promotes the mean
        log_prob = normals.log_prob(v.swapaxes(-1, -2)).sum(axis=-1)
    return kl_divergence(normals, standard).sum(), log_prob


def test_kl_and_density_equal_numpyros_normals(case):
    q, loc, dense = case
    v = jnp.asarray(np.random.default_rng(1).standard_normal((3, M, P)))
    kl, log_prob = of_multivariate_normals(loc, dense, v)
    np.testing.assert_allclose(kl_to_prior(q), kl, rtol=1e-12)
    np.testing.assert_allclose(q.log_prob(v), log_prob, rtol=1e-12)
    np.testing.assert_allclose(q.log_prob(v[0]), log_prob[0], rtol=1e-12)


def test_no_closed_kl_to_another_prior(case):
    """The error makes NumPyro estimate the KL by Monte Carlo."""
    for other in (dist.Normal(0, 2), dist.Normal(1, 1), dist.Laplace(0, 1)):
        with pytest.raises(NotImplementedError):
            kl_divergence(case[0], other.expand((M, P)).to_event(2))


def test_moments_of_draws(case):
    q, loc, dense = case
    v = q.sample(KEY, (20_000,))
    assert v.shape == (20_000, M, P)
    assert_mean(v, loc)
    block = np.zeros((M * P, M * P))
    for p in range(P):
        rows = np.arange(M) * P + p
        block[np.ix_(rows, rows)] = dense[p]
    assert_covariance(v.reshape(-1, M * P), block)
    np.testing.assert_allclose(q.mean, loc)
    np.testing.assert_allclose(q.variance, np.diagonal(dense, axis1=1, axis2=2).T, rtol=1e-12)


@pytest.mark.parametrize("shape", [(M, 3), (P, M, 3)])
def test_moments_of_a_projection(case, shape):
    """Mean and covariance of A'v are exact, for a shared A or one per output."""
    q, loc, dense = case
    A = np.random.default_rng(2).standard_normal(shape)
    each = np.broadcast_to(A, (P, M, 3))
    mean = np.stack([each[p].T @ loc[:, p] for p in range(P)], axis=1)
    cov = np.stack([each[p].T @ dense[p] @ each[p] for p in range(P)])
    np.testing.assert_allclose(project(jnp.asarray(A), q.loc), mean, rtol=1e-10)
    root = np.asarray(q.root_of(jnp.asarray(A)))
    np.testing.assert_allclose(root.swapaxes(-1, -2) @ root, cov, rtol=1e-10)
    np.testing.assert_allclose(
        q.variance_of(jnp.asarray(A)), np.diagonal(cov, axis1=1, axis2=2), rtol=1e-10
    )


def test_cholesky_factor_is_a_bijection():
    transform = biject_to(cholesky_factor)
    x = jnp.asarray(np.random.default_rng(3).standard_normal((P, M, M)))
    y = transform(x)
    assert cholesky_factor(y).all()
    assert (np.triu(y, 1) == 0).all()
    np.testing.assert_allclose(np.diagonal(y, 0, 1, 2), np.exp(np.diagonal(x, 0, 1, 2)))
    np.testing.assert_allclose(transform(transform.inv(y)), y, rtol=1e-12)
    np.testing.assert_allclose(transform.inv(y), np.tril(x), rtol=1e-12, atol=1e-15)


def test_log_determinant_of_the_bijection():
    """Compare with the Jacobian of the lower triangle by autodiff."""
    transform, rows = biject_to(cholesky_factor), np.tril_indices(M)
    x = jnp.asarray(np.random.default_rng(4).standard_normal((M, M)))

    def packed(lower):
        return transform(jnp.zeros((M, M)).at[rows].set(lower))[rows]

    jacobian = jax.jit(jax.jacfwd(packed))(x[rows])
    np.testing.assert_allclose(
        transform.log_abs_det_jacobian(x, transform(x)), np.linalg.slogdet(jacobian)[1], rtol=1e-12
    )


def test_arrays_come_in_the_same_order_in_every_process():
    """NumPyro takes the order of a set of strings, which differs from process to process."""
    q = FullInducing(jnp.zeros((M, P)), jnp.stack([jnp.eye(M)] * P))
    assert [leaf.shape for leaf in jax.tree.leaves(q)] == [(M, P), (P, M, M)]
    assert FullInducing.gather_pytree_data_fields() == ("loc", "scale_tril")
    assert DiagonalInducing.gather_pytree_data_fields() == ("loc", "scale")
