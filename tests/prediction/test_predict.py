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
from numpyro.infer import Predictive
from scipy import stats
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    exact_posterior,
    hidden_nodes,
    layer_moments,
    one_layer,
    regression,
    slow,
    spread,
    start,
    two_layer_params,
)
from support.predictions import KERNEL, SHALLOW, X_TEST, Y_TEST, components, deep

import dgp_ppl as dgp
from dgp_ppl import kernels, metrics
from dgp_ppl.models import deep_gp, optimal_inducing, svgp
from dgp_ppl.prediction import _functionals
from dgp_ppl.prediction._noise import SpreadNoise

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
    z = np.linspace(-2, 2, 20)[:, None]  # which a fit in float32 rounds

    def model(x, y=None):
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), z)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x - 1.7e9 * (x > 1e9)), likelihood), obs=y)

    guide, counts = dgp.MeanField(model), np.array([0, 3, 1, 0, 2, 7, 4])
    params = dgp.fit(KEY, model, guide, X, np.round(Y**2), steps=40, progress=False).params
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
    """Moments, density, quantiles and CRPS follow from the passes' Gaussians."""
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


# --- other likelihoods ---------------------------------------------------------------------------

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


@pytest.mark.slow
def test_counts():
    """Quantiles of a Poisson are the smallest counts that reach their level."""
    p = with_likelihood(lambda f: dist.Poisson(jnp.exp(f)), num_samples=2)
    rate = np.exp(MEAN + SD * np.random.default_rng(0).standard_normal((100_000, 3)))
    assert_mean(rate, p.mean)
    y = np.array([0, 1, 4])
    assert_mean(stats.poisson(rate).pmf(y), np.exp(p.log_prob(y)))
    quantiles = p.quantile(LEVELS)
    np.testing.assert_array_equal(quantiles, np.round(quantiles))
    for level, value in zip(LEVELS, quantiles, strict=True):
        assert (stats.poisson(rate).cdf(value).mean(axis=0) >= level - 2e-3).all()
        assert (stats.poisson(rate).cdf(value - 1).mean(axis=0) < level + 2e-3).all()


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


# --- draws instead of a guide --------------------------------------------------------------------


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


# --- errors --------------------------------------------------------------------------------------


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
        (lambda: deep(batch_size=4).mean, r"\(4,\) for 7 rows.*leave batch_size out"),
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


def test_the_passes_average_to_the_doubly_stochastic_prediction():
    """Against quadrature over the hidden layer, in NumPy."""
    loc, scale = components(deep(num_samples=4000))
    mean, density = np.zeros(7), np.zeros(7)
    for weight, h in hidden_nodes(two_layer_params(), X_TEST):
        f_mean, f_var = layer_moments(two_layer_params(), 2, h[:, None])
        mean += weight * f_mean
        density += weight * stats.norm(f_mean, np.sqrt(f_var + 0.3**2)).pdf(Y_TEST)
    assert_mean(loc, mean)
    assert_mean(stats.norm(loc, scale).pdf(Y_TEST), density)

    few, _ = components(deep(num_samples=64))  # spread noise: random noise has an error of 1
    errors = (few.mean(axis=0) - mean) / (few.std(axis=0) / np.sqrt(64))
    assert np.sqrt(np.mean(errors**2)) < 0.25


@pytest.mark.parametrize("points", [1, 2])
def test_spread_noise_is_normal_and_independent_within_a_row(points):
    """Over keys of a single pass, also between the points of a row, and between rows."""

    def model():
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), jnp.zeros((1, 1)), out=2)
        with numpyro.plate("data", 3):
            return f.unit_noise(jnp.zeros((3 * points, 1)))

    def one(key):
        return SpreadNoise(handlers.seed(model, key), key, jnp.arange(9) / 9, 6)()

    draws = jax.vmap(one)(random.split(KEY, 2000)).reshape(2000, -1)
    assert_covariance(draws, np.eye(6 * points))
    assert stats.kstest(np.ravel(draws), "norm").pvalue > 1e-3


def test_spread_noise_of_rows_is_independent_over_passes():
    loc, _ = components(deep(x=np.zeros((200, 1)), num_samples=100))
    white = (loc - loc.mean(axis=0)) / loc.std(axis=0)
    correlation = np.corrcoef(white.T)[np.triu_indices(200, 1)]
    np.testing.assert_allclose(np.std(correlation), 1 / np.sqrt(99), rtol=0.2)


def test_rows_of_different_chunks_have_noise_of_their_own():
    x = np.zeros((4, 1))  # four times the same input
    loc, _ = components(deep(x=x, chunk_size=2))
    assert (np.std(loc, axis=1) > 0).all()
    assert (loc[:, :2] != loc[:, 2:]).all()


def test_all_chunks_of_a_prior_pass_see_one_function():
    options = {"z": spread(5), "num_samples": 3}
    whole, parts = (
        dgp.predict(KEY, svgp, None, {"noise": 0.3} | KERNEL, X_TEST, chunk_size=n, **options)
        for n in (7, 2)
    )
    np.testing.assert_allclose(components(whole)[0], components(parts)[0], atol=1e-5)


X_FIVE, _ = regression(rows=5)
PARAMS = {"l1.v.loc": jnp.linspace(-1, 1, 4)[:, None], "l1.v.scale_tril": 0.1 * jnp.eye(4)[None]}


def test_the_layer_integrates_over_the_guides_q():
    """The marginals of f equal `predict`'s, whatever the key."""
    guide = dgp.MeanField(one_layer)
    program = dgp.guided(one_layer, guide, PARAMS)
    means = []
    for seed in (0, 1):
        with handlers.seed(rng_seed=seed):
            sites = handlers.trace(program).get_trace(X_FIVE, z=spread(4))
        means.append(np.asarray(sites["y"]["fn"].marginals.mean)[:, 0])
    np.testing.assert_allclose(means[0], means[1], rtol=1e-6)
    wanted = dgp.predict(KEY, one_layer, guide, PARAMS, X_FIVE, num_samples=1, z=spread(4)).mean
    np.testing.assert_allclose(means[0], wanted, rtol=1e-4, atol=1e-5)


def test_latent_sites_of_another_support():
    """Params are in unconstrained space; reconstructions apply the bijection."""

    def model(x, y=None):
        f = dgp.gp("l1", kernels.Linear(1.0, 1.0), jnp.array([[1.0]]))
        with dgp.minibatch(x, y) as (x, y):
            w = numpyro.sample("latent", dist.LogNormal(0, 1).expand([1]).to_event(1))
            numpyro.sample("y", dgp.observe(f(w), lambda f: dist.Normal(f, 0.1)), obs=y)

    x, y = jnp.zeros((4, 0)), jnp.arange(4.0)
    guide = dgp.MeanField(model)
    loc = jnp.array([[-1.0], [0.0], [1.0], [2.0]])
    params = start(model, guide, x, y) | {"latent_auto_loc": loc, "l1.v.loc": jnp.ones((1, 1))}
    params |= {"latent_auto_scale": jnp.full((4, 1), 1e-4)}
    params |= {"l1.v.scale_tril": jnp.full((1, 1, 1), 1e-4)}
    back = dgp.latent_inputs(model, guide, params).reconstruct(KEY, num_samples=5)
    np.testing.assert_allclose(back.mean, np.exp(loc)[:, 0], rtol=1e-2)


def grouped(x, group, y=None, t=None, other=None, other_y=None, *, z, taken=False):
    """Groups with data of their own, rows with latent noise, and rows of another data set."""
    f = dgp.gp("f", kernels.Matern32(1.0, 1.0), z)
    with dgp.minibatch(t, name="groups") if taken else numpyro.plate("groups", 3):
        u = numpyro.sample("u", dist.Normal(0.0, 4.0))
        numpyro.sample("t", dist.Normal(u, 0.1), obs=t)

    def observed(name, x, y):
        with dgp.minibatch(x, group, y, name=f"data{name}") as (x, own, y):
            e = numpyro.sample(f"e{name}", dist.Normal(0.0, 2.0))
            q = dgp.observe(f(x) + u[own] + e, lambda f: dist.Normal(f, 0.1))
            numpyro.sample(f"y{name}", q, obs=y)

    observed("", x, y)
    if other is not None:
        observed("2", other, other_y)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("site", ["y", "y2"])
@pytest.mark.parametrize("rows", [3, 6])
def test_only_latents_of_the_predicted_rows_are_new(rows, site, taken):
    x, group, t, truth = X[:6], np.arange(6) % 3, np.zeros(3), np.array([-30.0, 0.0, 30.0])
    options = {"z": X[:3], "taken": taken}
    guide = dgp.MeanField(grouped)
    seeded = handlers.seed(guide, KEY)
    trace = handlers.trace(seeded).get_trace(x, group, Y[:6], t, x, Y[:6], **options)
    params = {n: s["value"] for n, s in trace.items() if s["type"] == "param"}
    params |= {n: jnp.full_like(a, 1e-3) for n, a in params.items() if n.endswith("auto_scale")}
    params |= {f"{n}_auto_loc": jnp.full(6, 1e3) for n in ("e", "e2")} | {"u_auto_loc": truth}
    draws = {"f.v": jnp.zeros((400, 3, 1)), "u": jnp.full((400, 3), truth)}
    draws |= {n: jnp.full((400, 6), 1e3) for n in ("e", "e2")}
    second = () if site == "y" else (x[:rows],)
    args = (x[:rows], group[:rows], None, t, *second)
    p = dgp.predict(KEY, grouped, guide, params, *args, num_samples=400, site=site, **options)
    own = {"num_samples": 400, "posterior_samples": draws, "site": site}
    of_draws = dgp.predict(KEY, grouped, None, {}, *args, **own, **options)
    for found in (p, of_draws):
        np.testing.assert_allclose(found.mean, truth[group[:rows]], atol=1.0)
        np.testing.assert_allclose(found.var, 5.0, rtol=0.4)
    model = dgp.guided(grouped, guide, params)
    y = Predictive(model, num_samples=400)(KEY, *args, **options)[site]
    np.testing.assert_allclose(y.mean(0), truth[group[:rows]], atol=1.0)
