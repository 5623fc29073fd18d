"""`MixedNormal` against dense algebra, and its use in a deep GP."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import stats
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.likelihoods import MixedNormal, Mixture
from dgp_ppl.likelihoods._mixed import filled

N, P, Q = 6, 4, 2
RNG = np.random.default_rng(0)
W_ALL, S = RNG.normal(size=(P, Q)), np.array([0.1, 0.5, 1.0, 0.3])
M_ALL, V_ALL, Y = RNG.normal(size=(N, Q)), RNG.uniform(0.1, 2, (N, Q)), RNG.normal(size=(N, P))
SEEN = RNG.uniform(size=(N, P)) < 0.6
SEEN[0], SEEN[1] = True, False


@pytest.mark.parametrize(("seen", "Q"), [(None, 2), (SEEN, 2), (SEEN, 1)])
def test_densities_and_conditionals_are_those_of_dense_algebra(x64, seen, Q):
    W, M, V = W_ALL[:, :Q], M_ALL[:, :Q], V_ALL[:, :Q]
    f = dgp.Marginals(jnp.asarray(M), jnp.asarray(V), guided=True)
    with handlers.seed(rng_seed=0):
        y = dgp.observe(f, lambda f: MixedNormal(f, jnp.asarray(W), jnp.asarray(S)), mask=seen)
    assert not y.estimated
    bound, log_p = y.log_prob(jnp.asarray(Y)), y.log_density(jnp.asarray(Y))
    mixture = y.predictive().with_entries(jnp.asarray(np.ones_like(SEEN) if seen is None else seen))
    mean, var = mixture.components.given(jnp.asarray(Y))
    for n in range(N):
        at = np.ones(P, bool) if seen is None else seen[n]
        loc, cov = W @ M[n], W @ np.diag(V[n]) @ W.T + np.diag(S**2)
        wanted = stats.norm(loc, S).logpdf(Y[n]) - 0.5 * (W**2 @ V[n]) / S**2
        np.testing.assert_allclose(bound[n], wanted[at].sum(), rtol=1e-10, atol=1e-10)
        K, r = cov[np.ix_(at, at)], (Y[n] - loc)[at]
        dense = stats.multivariate_normal(r * 0, K).logpdf(r) if at.any() else 0.0
        np.testing.assert_allclose(log_p[n], dense, rtol=1e-10, atol=1e-10)
        gain = (W @ np.diag(V[n]) @ W.T)[:, at] @ np.linalg.inv(K)
        np.testing.assert_allclose(mean[0, n], loc + gain @ r, atol=1e-10)
        new = np.diag(cov - gain @ (W @ np.diag(V[n]) @ W.T)[at])
        np.testing.assert_allclose(var[0, n], new, atol=1e-10)


def test_float32_keeps_what_a_small_noise_leaves_open():
    """Of one seen entry and two latents; a factor of I + W'W v / s² loses all of the rest."""
    s = 3e-4
    f = M_ALL * np.sqrt(V_ALL)
    y, seen = f @ W_ALL.T, np.arange(P) < np.ones((N, 1))
    y, v, W = (a.astype(np.float32) for a in (y, V_ALL, W_ALL))
    q = MixedNormal(np.zeros_like(v), W, np.float32(s), var=jnp.asarray(v), seen=jnp.asarray(seen))
    cov = np.einsum("pq,nq,rq->npr", *(a.astype(float) for a in (W, v, W))) + s**2 * np.eye(P)
    K = cov[:, 0, 0]
    mean, var = (np.asarray(a) for a in q.given(jnp.asarray(y)))
    sd = np.sqrt(cov[:, 1:, 1:].diagonal(axis1=1, axis2=2) - cov[:, 0, 1:] ** 2 / K[:, None])
    np.testing.assert_allclose(np.sqrt(var[:, 1:]), sd, rtol=1e-3)
    wanted = cov[:, 0, 1:] * (y[:, :1] / K[:, None])
    assert (np.abs(mean[:, 1:] - wanted) < 1e-3 * sd).all()
    density = stats.norm(0, np.sqrt(K)).logpdf(y[:, 0])
    np.testing.assert_allclose(q.log_prob(jnp.asarray(y)), density, atol=1e-4)


def test_draws_have_the_covariance_of_the_outputs():
    y = MixedNormal(M_ALL, W_ALL, S, var=jnp.asarray(V_ALL))
    r = y.sample(KEY, (20_000,))[:, 0] - y.mean[:1]
    cov = W_ALL @ np.diag(V_ALL[0]) @ W_ALL.T + np.diag(S**2)
    assert_mean(r[:, :, None] * r[:, None, :], cov)
    np.testing.assert_allclose(y.variance[0], np.diag(cov), rtol=1e-6)


def test_passes_count_by_what_they_say_of_the_seen_entries(x64):
    """The moments given all entries but one are integrals of the mixture's density over it."""

    def one_pass(m):
        return Mixture(jnp.zeros(1), MixedNormal(m[None], W_ALL, S, var=jnp.asarray(V_ALL)[None]))

    mixtures = jax.vmap(one_pass)(jnp.stack([M_ALL, M_ALL + 1.0]))
    y, seen = jnp.asarray(Y), jnp.ones((N, P), bool).at[:, 2].set(False)
    grid = jnp.linspace(-15, 15, 3001)
    density = lambda a: jnp.exp(jax.vmap(lambda m: m.log_prob(y.at[:, 2].set(a)))(mixtures)).sum(0)  # noqa: E731
    weights = jax.vmap(density)(grid)
    mean = (weights * grid[:, None]).sum(0) / weights.sum(0)
    var = (weights * (grid[:, None] - mean[None]) ** 2).sum(0) / weights.sum(0)
    np.testing.assert_allclose(filled(mixtures, y, seen)[:, :, 2].T, [mean, var], rtol=1e-6)


def test_a_deep_gp_fills_in_what_its_outputs_share():
    """Far from the data the function is not known, but an output tells about the others."""
    x = np.random.default_rng(1).uniform(-2, 2, (120, 1))
    truth = lambda x: np.c_[np.sin(3 * x), np.cos(2 * x)] @ W_ALL.T  # noqa: E731
    y = truth(x) + 0.05 * np.random.default_rng(2).normal(size=(120, P))
    scale = dgp.Standardizer.fit(x, y)
    rows = scale.inputs(x), scale.outputs(y)
    z = np.linspace(-2, 2, 12)[:, None]
    kwargs = {"z": (z,), "mixing": initialize.mixing(rows[1], Q)}
    guide = dgp.MeanField(models.deep_gp)
    fit = dgp.fit(KEY, models.deep_gp, guide, *rows, steps=200, progress=False, **kwargs)
    assert fit.params["l1.lengthscale"].shape == (Q, 1)
    far = np.linspace(5, 6, 10)[:, None]
    p = dgp.predict(
        KEY, models.deep_gp, guide, fit, far, num_samples=2, standardizer=scale, **kwargs
    )
    wanted, seen = truth(far), np.arange(P)[None] < Q + (0 * far).astype(int)
    found, sd = p.fill(np.where(seen, wanted, np.nan))
    np.testing.assert_array_equal(found[seen], wanted[seen])
    assert (sd[seen] == 0).all()
    assert (sd[~seen] > 0).all()
    assert np.abs(found - wanted).max() < 0.3 < np.abs(p.mean - wanted).max()
    # Given all outputs but one, its density is that of all, less that of the others.
    others = np.ones_like(seen)
    others[:, 0] = False
    mean, error = p.fill(np.where(others, wanted, np.nan))
    log_p = p.log_prob(wanted) - p.log_prob(wanted, mask=others)
    density = stats.norm(mean[:, 0], error[:, 0]).logpdf(wanted[:, 0])
    np.testing.assert_allclose(log_p, density, atol=1e-3)


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"latent has shape \(6, 2\) and mixing \(2, 4\)"):
        MixedNormal(M_ALL, W_ALL.T)
    with pytest.raises(ValueError, match=r"scale has shape \(2,\), wanted a number or \(4,\)"):
        MixedNormal(M_ALL, W_ALL, np.ones(2))
    with pytest.raises(
        ValueError, match="mixing is given with out, wanted the outputs that are its rows"
    ):
        models.deep_gp(M_ALL, z=(M_ALL,), mixing=W_ALL, out=2)
    with pytest.raises(ValueError, match=r"mixing has shape \(4,\), wanted \[P, Q\]"):
        models.deep_gp(M_ALL, z=(M_ALL,), mixing=W_ALL[:, 0])
    with pytest.raises(ValueError, match=r"mixing: y has shape \(6, 4\), .* num=5"):
        initialize.mixing(Y, 5)
    with pytest.raises(ValueError, match="infinity, or a column of NaN alone"):
        initialize.mixing(np.where(np.arange(P)[None] == 0, np.nan, Y), 1)
    p = dgp.predict(KEY, models.svgp, None, {}, M_ALL, z=M_ALL, out=2, num_samples=2)
    with pytest.raises(ValueError, match="fill: entries of y are Normal, independent"):
        p.fill(M_ALL)
