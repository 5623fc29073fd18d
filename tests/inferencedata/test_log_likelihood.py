"""The pointwise log-likelihood in chunks, and with hidden noise."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray
from jax import random
from support.trees import KEY, X, Y, Z, deep, fitted

import dgp_ppl as dgp
from dgp_ppl import kernels


@pytest.mark.slow
def test_chunks_of_rows_say_the_same_but_for_the_noise():
    def one(x, y=None, *, passes=None):
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), jnp.asarray(Z, float))
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.3)), obs=y)

    guide, params = fitted(one, X, Y)
    trees = [
        dgp.to_inferencedata(KEY, one, guide, params, X, Y, num_samples=6, chunk_size=size)
        for size in (None, 7, 23)
    ]
    for tree in trees[1:]:
        np.testing.assert_allclose(
            tree["log_likelihood"]["y"], trees[0]["log_likelihood"]["y"], rtol=2e-4, atol=1e-5
        )
        xarray.testing.assert_equal(tree["posterior"], trees[0]["posterior"])
        xarray.testing.assert_equal(tree["observed_data"], trees[0]["observed_data"])


def test_chunks_compile_once():
    """This holds for users' models too, whose programs are not shared between calls."""
    calls = []

    def counted(x, y=None):
        calls.append(len(x))
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(w * x[:, 0], 0.3), obs=y)

    def traces(size):
        calls.clear()
        dgp.to_inferencedata(
            KEY, counted, None, {}, jnp.asarray(X), jnp.asarray(Y), chunk_size=size,
            posterior_samples={"w": np.zeros(4)}, num_prior_samples=0,
        )  # fmt: skip
        return len(calls)

    assert traces(2) == traces(8)


@pytest.mark.slow
def test_hidden_noise_is_integrated_out_by_the_mean_of_p():
    """With more passes, the log-likelihood rises (Jensen's inequality) and varies less."""
    guide, params = fitted(deep, X, Y, priors=False)

    def likelihood(passes, seed):
        tree = dgp.to_inferencedata(
            random.key(seed), deep, None, params, X, Y, num_prior_samples=0, passes=passes,
            posterior_samples=samples, priors=False,
        )  # fmt: skip
        return tree["log_likelihood"]["y"].values[0]

    samples = guide.sample_posterior(KEY, params, X, Y, sample_shape=(40,), priors=False)
    few, many, again = likelihood(2, 1), likelihood(64, 2), likelihood(64, 3)
    assert (many - again).std() < 0.5 * (few - again).std()
    gain = (many - few).mean(axis=1)
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain))
