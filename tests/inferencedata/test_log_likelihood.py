"""The pointwise log-likelihood in chunks, and with hidden noise."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from scipy import stats
from support import tiny
from support.objectives import NOISE
from support.trees import KEY, X, Y

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels


def test_chunks_compile_once():
    """This holds for users' models too, whose programs are not shared between calls."""
    calls = []
    record = calls.append  # a method of Python's list, which the key of a model does not look into

    def counted(x, y=None):
        record(len(x))
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(w * x[:, 0], 0.3), obs=y)

    def traces(size):
        before = calls.count(size)
        dgp.to_inferencedata(
            KEY, counted, None, {}, jnp.asarray(X), jnp.asarray(Y), chunk_size=size,
            posterior_samples={"w": np.zeros(4)}, num_prior_samples=0,
        )  # fmt: skip
        return calls.count(size) - before

    assert traces(2) == traces(8)


def test_chunks_have_the_rows_of_minibatch_and_all_masks_count():
    """An array that is as long as x by chance stays whole."""

    def centred(x, y, seen, keep, centres):
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), X[::5])
        with dgp.minibatch(x, y, seen, keep) as (x, y, seen, keep), handlers.mask(mask=keep):
            trend = f(x) + jnp.exp(-((x[:, :1] - centres[:, 0]) ** 2)).sum(axis=1)
            numpyro.sample("y", dgp.observe(trend, lambda f: dist.Normal(f, 0.3), mask=seen), obs=y)

    seen, keep = (np.arange(23) % n > 0 for n in (4, 5))
    given = X, Y, seen, keep, X[::-1]
    draws = {"f.v": np.random.default_rng(0).normal(size=(3, 5, 1))}
    trees = [
        dgp.to_inferencedata(
            KEY, centred, None, {}, *given, posterior_samples=draws, num_prior_samples=0,
            chunk_size=size,
        )
        for size in (None, 8)
    ]  # fmt: skip
    whole, parts = (tree["log_likelihood"] for tree in trees)
    assert whole["y.seen"].values.tolist() == np.flatnonzero(seen & keep).tolist()
    np.testing.assert_allclose(parts["y"], whole["y"], rtol=1e-5)


def test_hidden_noise_is_integrated_out_by_the_mean_of_p():
    """Within its error it is the integral over the noise, by quadrature, at every draw of v."""
    draws, passes = 0.5 * np.random.default_rng(0).standard_normal((2, 20, 1, 1)), 1000
    tree = dgp.to_inferencedata(
        KEY, tiny.tiny, None, {}, tiny.X, tiny.Y, num_prior_samples=0, passes=passes,
        posterior_samples={"l1.v": draws[0], "l2.v": draws[1]},
    )  # fmt: skip
    corrected, correction = tree["log_likelihood"]["y"], tree["constant_data"]["y_loo_correction"]
    terms, noise = [], np.linspace(-7, 7, 1001)
    for v1, v2 in draws[:, :, 0, 0].T:
        mean, var = tiny.given(v2, tiny.hidden(v1, noise))
        terms.append(stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(tiny.Y))
    p, weights = np.exp(terms), stats.norm.pdf(noise)[:, None] / stats.norm.pdf(noise).sum()
    first, second = (np.sum(weights * p**k, axis=1) for k in (1, 2))
    error = np.sqrt((second / first**2 - 1) / passes)
    z = ((corrected - correction).values[0] - np.log(first)) / error
    assert error.max() < 0.03
    assert np.abs(z).max() < 4.5
    assert 0.7 < z.std() < 1.3, z.std()


def sparse(x, y=None):
    """Two layers whose few inducing inputs leave the hidden layer much noise."""
    hidden, last = (np.linspace(-2, 2, num)[:, None] for num in (3, 4))
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), jnp.asarray(hidden, float))
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), jnp.asarray(last, float))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f2(f1.sample(x)), lambda f: dist.Normal(f, 0.2)), obs=y)


@pytest.mark.slow
def test_few_passes_bias_loo_by_less_than_a_tenth_of_its_error():
    x = np.linspace(-2, 2, 12)[:, None]
    y = np.sign(x[:, 0]) + 0.2 * np.random.default_rng(1).normal(size=12)
    guide = dgp.MeanField(sparse)
    params = dgp.fit(KEY, sparse, guide, x, y, steps=2000, progress=False).params
    samples = guide.sample_posterior(KEY, params, x, y, sample_shape=(1000,))

    def tree_of(passes, seed):
        return dgp.to_inferencedata(
            random.key(seed), sparse, None, params, x, y, posterior_samples=samples,
            num_samples=1000, num_prior_samples=0, passes=passes,
        )  # fmt: skip

    reference = tree_of(1000, 1)
    exact = criticism.loo(reference)
    enough = tree_of(None, 2)
    assert 10 < enough["log_likelihood"].attrs["passes"] <= 160
    found = criticism.loo(enough)  # no warning
    assert abs(found.elpd - exact.elpd) < 0.1 * exact.se
    assert abs(found.p - exact.p) < 0.1 * exact.se
    # Ten passes are too few here, as the warning says. The correction removes most of the bias.
    few = tree_of(10, 3)
    with pytest.warns(UserWarning, match=r"passes=10, which .* bias of .* nats.*set passes=20"):
        corrected = criticism.loo(few)
    correction = float(few["constant_data"]["y_loo_correction"].sum())
    assert corrected.elpd - correction < exact.elpd - 0.25 * exact.se
    bias = few["log_likelihood"]["y"].attrs["loo_bias"]
    assert abs(corrected.elpd - exact.elpd) < min(bias, 0.3 * correction)
