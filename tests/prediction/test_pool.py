"""`pool`: mixtures of predictions."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from scipy.special import logsumexp
from support.fits import SHALLOW, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.models import svgp

X_NEW = np.linspace(-2, 2, 5)[:, None]
Y_NEW = np.linspace(-1, 1, 5)


@functools.cache
def params():
    return [shallow(key=k, batch_size=4).params for k in random.split(KEY, 3)]


def predictions(num=3, **options):
    options = {"num_samples": 4, "z": Z} | options
    return [dgp.predict(KEY, svgp, SHALLOW, p, X_NEW, **options) for p in params()[:num]]


def test_a_pool_is_the_mixture_with_equal_weights():
    members = predictions()
    pooled = dgp.pool(members)
    means, variances = (np.array([getattr(m, n) for m in members]) for n in ("mean", "var"))
    np.testing.assert_allclose(pooled.mean, means.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        pooled.var, variances.mean(axis=0) + means.var(axis=0), rtol=1e-4, atol=1e-6
    )
    log_p = logsumexp([m.log_prob(Y_NEW) for m in members], axis=0) - np.log(3)
    np.testing.assert_allclose(pooled.log_prob(Y_NEW), log_p, rtol=1e-5, atol=1e-5)
    assert (np.ptp(means, axis=0) > 0).all()


def test_quantiles_and_draws_of_a_pool():
    pooled = dgp.pool(predictions(num=2))
    low, high = pooled.interval(0.8)
    draws = pooled.sample(KEY, 4000)
    share = ((draws > low) & (draws < high)).mean(axis=0)
    assert (abs(share - 0.8) < 4.5 * np.sqrt(0.16 / 4000)).all()


def test_a_pool_of_pools_is_the_pool_of_their_members():
    members = predictions(num=3)
    other = predictions(num=1, chunk_size=2)[0]
    nested = dgp.pool([dgp.pool(members), other])
    np.testing.assert_allclose(nested.mean, dgp.pool([*members, other]).mean)
    assert len(nested.members) == 4
    assert nested.function_draws(KEY, 0).shape == (0, 5)
    np.testing.assert_array_equal(dgp.pool(other).mean, other.mean)


@pytest.mark.wrong_types
def test_what_cannot_be_mixed():
    one = predictions(num=1)
    elsewhere = dgp.predict(KEY, svgp, SHALLOW, one[0].params, 0 * X_NEW, num_samples=4, z=Z)
    scale = dgp.Standardizer(np.zeros(1), np.ones(1), 1.0)
    for others, error, pattern in (
        (predictions(num=1, num_samples=5), ValueError, r"predictions\[1\] has 5 passes"),
        (predictions(num=1, standardizer=scale), ValueError, "another standardizer"),
        ([elsewhere], ValueError, r"predictions\[1\] has other inputs"),
        (["x"], TypeError, r"predictions\[1\] is 'x'"),
    ):
        with pytest.raises(error, match=f"pool: .*{pattern}"):
            dgp.pool([*one, *others])
    known = {n: a for n, a in one[0].params.items() if n != "noise"}
    counts = dgp.predict(
        KEY, svgp, SHALLOW, known, X_NEW, num_samples=4, z=Z,
        likelihood=lambda f: dist.Poisson(jnp.exp(f)),
    )  # fmt: skip
    with pytest.raises(TypeError, match=r"pool: .*Normal, Poisson.*wanted fits of one likelihood"):
        dgp.pool([*one, counts]).log_prob(np.zeros(5))
    with pytest.raises(ValueError, match="pool: predictions is empty"):
        dgp.pool([])
