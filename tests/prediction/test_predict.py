"""Predictions against exact ones, quadrature over hidden layers, and brute force."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from scipy import stats
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    exact_posterior,
    layer_moments,
    regression,
    slow,
    spread,
    two_layer_params,
)
from support.predictions import KERNEL, SHALLOW, X_TEST, Y_TEST, components, deep

import dgp_ppl as dgp
from dgp_ppl import kernels, metrics
from dgp_ppl.models import deep_gp, optimal_inducing, svgp
from dgp_ppl.prediction import _functionals

X, Y = regression()


LEVELS = np.array([0.001, 0.1, 0.5, 0.95])


@pytest.fixture(scope="module")
def exact():
    """Params of the conjugate model at z = X, and the exact mean and covariance of f."""
    with jax.enable_x64(True):
        x, y = regression()
        params = {"l1.z": x, "noise": 0.3} | KERNEL
        params = optimal_inducing(params, x, y)
    mean, cov = exact_posterior(X, Y, X_TEST)
    return params, mean, cov


def shallow(params, **options):
    options = {"num_samples": 3} | options
    return dgp.predict(KEY, svgp, SHALLOW, params, X_TEST, z=params["l1.z"], **options)


@pytest.mark.usefixtures("x64")
def test_a_conjugate_model_predicts_the_exact_posterior(exact):
    params, mean, cov = exact
    p, true = shallow(params), stats.norm(mean, np.sqrt(np.diag(cov) + 0.3**2))
    np.testing.assert_allclose(p.mean, true.mean(), atol=1e-6)
    np.testing.assert_allclose(p.var, true.var(), atol=1e-6)
    np.testing.assert_allclose(p.log_prob(Y_TEST), true.logpdf(Y_TEST), atol=1e-5)
    np.testing.assert_allclose(p.quantile(LEVELS), true.ppf(LEVELS[:, None]), atol=1e-5)
    np.testing.assert_allclose(p.interval(0.8), true.interval(0.8), atol=1e-5)
    assert all(a.dtype == np.float64 for a in (p.mean, p.var, p.quantile(0.5)))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("mode", "num"), [("joint", 2000), ("path", 300)])
def test_function_draws_are_draws_of_the_posterior_process(exact, mode, num):
    params, mean, cov = exact
    draws = shallow(params).function_draws(KEY, num, mode)
    assert draws.shape == (num, 7)
    assert_mean(draws, mean)
    assert_covariance(draws, cov)


@pytest.mark.parametrize(
    "likelihood", [lambda f: dist.Normal(f, 0.1), lambda f: dist.Poisson(jnp.exp(f))]
)
def test_params_in_float32_mean_the_same_function_where_jax_has_float64(likelihood):
    z = np.linspace(-2, 2, 20)[:, None]  # which float32 rounds

    def model(x, y=None):
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), z)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x - 1.7e9 * (x > 1e9)), likelihood), obs=y)

    guide, counts = dgp.MeanField(model), np.array([0, 3, 1, 0, 2, 7, 4])
    loc = np.sin(np.arange(20, dtype=np.float32))[:, None]
    params = {"f.v.loc": loc, "f.v.scale_tril": 0.5 * np.eye(20, dtype=np.float32)[None]}
    found = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            p = dgp.predict(random.key(0), model, guide, params, X_TEST)
            found.append((p.mean, p.var, p.log_prob(counts), p.quantile(0.9)))
            far = dgp.predict(random.key(0), model, guide, params, 1.7e9 + X_TEST) if wide else p
            found[-1] += (far.mean,)  # JAX's float64 has more digits of x, and of counts
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=5e-4, atol=1e-4)
    with jax.enable_x64(True):
        assert np.isfinite(p.log_prob(np.full(7, 3_000_000_000))).all()


def test_a_prediction_is_the_mixture_of_its_passes():
    """Moments, density, quantiles, CRPS and distribution function follow from their Gaussians."""
    p = deep()
    loc, scale = components(p)
    assert loc.shape == (50, 7)
    assert len(np.unique(loc[:, 0])) == 50  # each pass has its own draws
    np.testing.assert_allclose(p.mean, loc.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(p.var, (scale**2).mean(axis=0) + loc.var(axis=0), rtol=1e-4)
    density = stats.norm(loc, scale).pdf(Y_TEST).mean(axis=0)
    np.testing.assert_allclose(p.log_prob(Y_TEST), np.log(density), rtol=1e-4, atol=1e-4)
    quantiles = p.quantile(LEVELS)
    for level, value in zip(LEVELS, quantiles, strict=True):
        np.testing.assert_allclose(stats.norm(loc, scale).cdf(value).mean(axis=0), level, atol=1e-4)
    np.testing.assert_allclose(p.interval(0.9)[1], p.quantile(0.95), rtol=1e-6)
    np.testing.assert_allclose(
        p.crps(Y_TEST), metrics.crps_gaussian_mixture(Y_TEST, loc, scale), rtol=1e-3, atol=1e-5
    )
    for y in (Y_TEST, 0.5):
        np.testing.assert_allclose(p.cdf(y), stats.norm(loc, scale).cdf(y).mean(axis=0), atol=1e-5)
    with pytest.raises(ValueError, match=r"cdf: y has shape \(7, 1\), wanted \(7,\).*y\[:, 0\]"):
        p.cdf(Y_TEST[:, None])


def test_draws_have_the_mixtures_moments():
    p = deep()
    draws = p.sample(KEY, 6000)
    assert draws.shape == (6000, 7)
    assert_mean(draws, p.mean)
    assert_mean((draws - p.mean) ** 2, p.var)


def test_a_standardizer_changes_units():
    x, y = 100 + 20 * np.asarray(X), 5e4 + 3e3 * np.asarray(Y)
    scaler = dgp.Standardizer.fit(x, y)
    ours = deep(x=100 + 20 * X_TEST, standardizer=scaler)
    plain = deep(x=scaler.inputs(100 + 20 * X_TEST))
    loc, scale = scaler.y_loc, scaler.y_scale
    np.testing.assert_allclose(ours.mean, loc + scale * plain.mean, rtol=1e-6)
    np.testing.assert_allclose(ours.var, scale**2 * plain.var, rtol=1e-5)
    np.testing.assert_allclose(ours.quantile(0.3), loc + scale * plain.quantile(0.3), rtol=1e-6)
    np.testing.assert_allclose(
        ours.log_prob(loc + scale * Y_TEST), plain.log_prob(Y_TEST) - np.log(scale), rtol=1e-4
    )
    np.testing.assert_allclose(ours.sample(KEY, 5), loc + scale * plain.sample(KEY, 5), rtol=1e-5)
    np.testing.assert_allclose(ours.crps(ours.mean), scale * plain.crps(plain.mean), rtol=1e-4)
    np.testing.assert_allclose(
        ours.function_draws(KEY, 2), loc + scale * plain.function_draws(KEY, 2), rtol=1e-5
    )


@pytest.mark.usefixtures("x64")  # float32 is too coarse for as many inducing inputs as rows
def test_chunks_do_not_change_a_prediction_without_hidden_noise(exact):
    whole, chunked = shallow(exact[0]), shallow(exact[0], chunk_size=3)
    np.testing.assert_allclose(chunked.mean, whole.mean, atol=1e-9)
    np.testing.assert_allclose(chunked.var, whole.var, atol=1e-9)
    # XLA rounds differently for another number of rows, and rounding decides where the search for a
    # quantile stops: at the midpoint of a bracket of this width that holds the true quantile.
    width = _functionals.QUANTILE_TOLERANCE * np.sqrt(whole.var)
    assert (np.abs(chunked.quantile(0.9) - whole.quantile(0.9)) <= width).all()
    np.testing.assert_allclose(chunked.log_prob(Y_TEST), whole.log_prob(Y_TEST), atol=1e-8)


MEAN, SD = np.array([-0.5, 0.3, 1.0]), np.array([0.3, 0.5, 0.2])


def known_latent(x, *, likelihood):
    """Three inputs, each its own inducing point: f there is N(MEAN, SD²)."""
    f = dgp.gp("f", kernels.SquaredExponential(1.0, 1e-2), x)
    numpyro.sample("y", dgp.observe(f(x), likelihood))


def with_likelihood(likelihood, **options):
    guide = dgp.MeanField(known_latent, covariance="diagonal")
    params = {"f.v.loc": jnp.asarray(MEAN[:, None], float)}
    params["f.v.scale"] = jnp.asarray(SD[:, None], float)
    x = np.arange(3.0)[:, None]
    return dgp.predict(KEY, known_latent, guide, params, x, likelihood=likelihood, **options)


def test_quantiles_close_to_1():
    """float32 rounds 1 - 1e-9 to 1: a Gaussian's are in float64, and the others' have a warning."""
    p = with_likelihood(lambda f: dist.Normal(f, 0.3), num_samples=1)
    low, high = (p.interval(1 - 2e-9) - p.mean) / np.sqrt(p.var)
    np.testing.assert_allclose(high, stats.norm.ppf(1 - 1e-9), atol=1e-5)
    np.testing.assert_allclose(low, -high, atol=1e-5)
    p = with_likelihood(lambda f: dist.StudentT(4.0, f, 0.5), num_samples=1)
    with pytest.warns(UserWarning, match="float32, which blurs .* above level 0.999999 by 12 %"):
        p.quantile(1 - 1e-6)


SUPPORTS = {
    "positive": (
        lambda f: dist.Gamma(2.0, 2 * jnp.exp(-f)), lambda f: stats.gamma(2, scale=np.exp(f) / 2)
    ),
    "real": (lambda f: dist.Cauchy(f, 0.5), lambda f: stats.cauchy(f, 0.5)),
    "unit": (lambda f: dist.Beta(jnp.exp(f), 0.35), lambda f: stats.beta(np.exp(f), 0.35)),
}  # fmt: skip


@pytest.mark.parametrize("support", [slow("positive"), "real", "unit"])
def test_quantiles_of_any_support(support):
    make, scipys = SUPPORTS[support]
    p = with_likelihood(make, num_samples=2)
    quantiles = p.quantile(LEVELS)
    assert np.isfinite(p.quantile([0.01, 0.3, 0.5, 0.99])).all()  # close to the ends of the support
    f = MEAN + SD * np.random.default_rng(0).standard_normal((20_000, 3))
    for level, value in zip(LEVELS, quantiles, strict=True):
        assert_mean(scipys(f).cdf(value), np.full(3, level))


def test_classes():
    p = with_likelihood(dgp.BernoulliProbit, num_samples=2)
    probability = stats.norm.cdf(MEAN / np.sqrt(1 + SD**2))
    np.testing.assert_allclose(p.mean, probability, rtol=1e-4)
    np.testing.assert_allclose(p.var, probability * (1 - probability), rtol=1e-4)
    np.testing.assert_allclose(np.exp(p.log_prob(np.ones(3))), probability, rtol=1e-4)
    draws = p.sample(KEY, 4000)
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert_mean(draws, p.mean)
    # BernoulliProbit has no distribution function, so the quantiles come from draws.
    assert set(np.unique(p.quantile([0.01, 0.99]))) <= {0.0, 1.0}


def test_params_in_float64_of_a_likelihood_without_closed_forms():
    guide = dgp.MeanField(known_latent, covariance="diagonal")
    params = {"f.v.loc": MEAN[:, None], "f.v.scale": SD[:, None]}
    x, likelihood = np.arange(3.0)[:, None], lambda f: dist.LogNormal(f, 0.5)
    p = dgp.predict(KEY, known_latent, guide, params, x, likelihood=likelihood)
    with pytest.warns(UserWarning, match="params are float64, and this likelihood is computed in"):
        np.testing.assert_allclose(p.mean, np.exp(MEAN + SD**2 / 2 + 0.125), rtol=1e-4)


def test_posterior_samples_replace_a_guide():
    """Each pass has the mean of f given one draw of v; draws of the training noise are ignored."""
    rng = np.random.default_rng(0)
    draws = {
        "l1.v": rng.standard_normal((10, 5, 1)),
        "l2.v": rng.standard_normal((10, 5, 1)),
        "l1.eps": np.full((10, 20, 1), np.nan),
    }
    z = (spread(5), spread(5))
    params = {n: a for n, a in two_layer_params(variance=1e-12).items() if ".v." not in n}
    p = dgp.predict(KEY, deep_gp, None, params, X_TEST, posterior_samples=draws, z=z)
    assert p.num_samples == 10
    loc, _ = components(p)
    for s in range(10):  # the hidden layer is the identity
        v = {"l2.v.loc": draws["l2.v"][s], "l2.v.scale_tril": np.zeros((1, 5, 5))}
        expected, _ = layer_moments(params | v, 2, X_TEST)
        np.testing.assert_allclose(loc[s], expected, atol=2e-3)
    few = dgp.predict(
        KEY, deep_gp, None, params, X_TEST, posterior_samples=draws, z=z, num_samples=4
    )
    np.testing.assert_allclose(components(few)[0], loc[[0, 3, 6, 9]], atol=1e-5)


def test_the_prior_predictive():
    params = {n: a for n, a in two_layer_params().items() if ".v." not in n}
    p = dgp.predict(KEY, deep_gp, None, params, X_TEST, z=(spread(5), spread(5)), num_samples=2000)
    assert_mean(components(p)[0], np.zeros(7))
    np.testing.assert_allclose(p.var, 1.5 + 0.3**2, rtol=0.15)


@pytest.mark.parametrize("handler", [handlers.condition, handlers.substitute])
def test_what_the_model_is_told_is_neither_drawn_nor_missing(handler):
    """A latent site with a value, and a measured constant, as posterior draws too lack them."""

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, 3))
        numpyro.sample("measured", dist.Normal(b, 1), obs=5.0)
        f = dgp.gp("f", kernels.SquaredExponential(0.01, 1.0), jnp.zeros((1, 1)))
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x) + b, lambda f: dist.Normal(f, 0.1)), obs=y)

    told = handler(model, data={"b": 5.0})
    for draws in (None, {"f.v": np.zeros((3, 1, 1))}):
        p = dgp.predict(KEY, told, None, {}, X_TEST, posterior_samples=draws)
        assert np.abs(p.mean - 5.0).max() < 0.1
        assert np.sqrt(p.var).max() < 0.2


@pytest.mark.wrong_types
def test_what_predictions_cannot_do_is_said():
    z = (spread(5), spread(5))
    params = {n: a for n, a in two_layer_params().items() if ".v." not in n}
    v = {f"l{i}.v": np.zeros((10, 5, 1)) for i in (1, 2)}

    def given(**draws):
        return dgp.predict(KEY, deep_gp, None, params, X_TEST, posterior_samples=draws, z=z)

    p = deep()
    for call, pattern in (
        (lambda: deep(x=X_TEST[:, 0]), r"predict: x .*\[N, D\]"),
        (lambda: deep(x=X_TEST[:0]), r"predict: x .*\[N, D\]"),
        (lambda: deep(num_samples=0), "num_samples is 0"),
        (lambda: deep(chunk_size=0), "chunk_size is 0"),
        (
            lambda: deep(batch_size=4).mean,
            r"\(4,\) for 7 rows.*leave batch_size out .*outside of scan",
        ),
        (lambda: given(), "posterior_samples .*same number of every site"),
        (lambda: given(**v | {"l2.v": np.zeros((3, 5, 1))}), "same number of every site"),
        # Without this error, the inducing values of l2 would be drawn from the prior.
        (lambda: given(**{"l1.v": v["l1.v"]}).mean, "posterior_samples .*'l2.v'"),
        (lambda: deep(site="z").mean, "site 'z' is not an observe.*'y'"),
        (lambda: deep(site="l1.v").mean, "site 'l1.v' is not an observe.*'y'"),
        (lambda: p.log_prob(Y_TEST[:, None]), r"y .*\(7, 1\).*pass y\[:, 0\]"),
        (lambda: p.log_prob(Y_TEST[:3]), r"y .*\(3,\).*7 inputs"),
        *(
            (lambda q=q: p.quantile(q), "q is .*strictly between 0 and 1")
            for q in (0.0, 1.0, -0.1, [0.5, 2.0])
        ),
        (lambda: p.probabilities, "wanted a class"),
        (lambda: p.cdf(np.nan), "cdf: y is NaN in 7 of 7 rows"),
    ):
        with pytest.raises(ValueError, match=pattern):
            call()
    loc = {"l2.v.loc": jnp.nan * p.params["l2.v.loc"]}
    broken = dataclasses.replace(p, params=p.params | loc, _cache={})
    for call in (lambda: broken.mean, lambda: broken.log_prob(Y_TEST), broken.interval):
        with pytest.warns(UserWarning, match=r"predict: NaN in \['y'\], of 'y' in 7 of 7 rows"):
            call()
