"""LOO against its closed form, and what other criteria say of models that are right or wrong."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_base import from_dict
from jax import random
from numpyro.infer import NUTS, Predictive
from numpyro.infer.autoguide import AutoNormal

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels, models
from dgp_ppl.inference.samplers._mcmc import run_mcmc

KEY = random.key(0)
N, NOISE = 30, 0.8
X = np.linspace(-3, 3, N)[:, None]
KERNEL = kernels.SquaredExponential(1.0, 1.2)


def conjugate(x, y=None):
    """One layer with inducing inputs at the data: p(f | v) is a point, all of it is a GP."""
    f = dgp.gp("l1", KERNEL, jnp.asarray(X, float))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, NOISE)), obs=y)


def gram():
    K = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)), np.float64)
    return K + 1e-6 * np.eye(N)


def target():
    rng = np.random.default_rng(1)
    return np.linalg.cholesky(gram()) @ rng.normal(size=N) + NOISE * rng.normal(size=N)


Y = target()


def exact_loo():
    """log p(y_n | all other y) of each row (Rasmussen and Williams 2006, eq. 5.10 to 5.12)."""
    inverse = np.linalg.inv(gram() + NOISE**2 * np.eye(N))
    var = 1 / np.diag(inverse)
    mean = Y - var * (inverse @ Y)
    return -0.5 * np.log(2 * np.pi * var) - 0.5 * (Y - mean) ** 2 / var, (mean, var)


def of_exact_posterior(key, num):
    """Draws of q(v) = p(v | y), from a `MeanField` guide at its exact params."""
    L = np.linalg.cholesky(gram())
    B = np.eye(N) + L.T @ L / NOISE**2
    cov = np.linalg.inv(B)
    params = {
        "l1.v.loc": jnp.asarray(cov @ L.T @ Y / NOISE**2, jnp.float32)[:, None],
        "l1.v.scale_tril": jnp.asarray(np.linalg.cholesky(cov), jnp.float32)[None],
    }
    guide = dgp.MeanField(conjugate)
    return dgp.to_inferencedata(key, conjugate, guide, params, X, Y, num_samples=num)


@pytest.fixture(scope="module")
def exact():
    return of_exact_posterior(KEY, 4000)


@pytest.fixture(scope="module")
def sampled():
    chains = run_mcmc(
        KEY, NUTS(conjugate), jnp.asarray(X), jnp.asarray(Y), num_warmup=300, num_samples=1000,
        num_chains=4, progress=False,
    )  # fmt: skip
    return dgp.to_inferencedata(
        KEY, conjugate, None, {}, X, Y, posterior_samples=chains, num_samples=4000
    )


def in_parts(tree, parts):
    """LOO of parts of the draws; with few draws Pareto k are called high sooner."""
    each = tree["posterior"].sizes["draw"] // parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [slice(i * each, (i + 1) * each) for i in range(parts)]
        return [criticism.loo(tree.isel(draw=r)).elpd for r in rows]


@pytest.mark.parametrize("route", ["exact", "sampled"])
def test_loo_is_the_closed_form(route, request):
    tree = request.getfixturevalue(route)
    found = criticism.loo(tree)
    own, _ = exact_loo()
    # The standard error of LOO's estimate, from how LOO of eighths of the draws spreads.
    parts = in_parts(tree, 8)
    error = np.std(parts, ddof=1) / np.sqrt(8)
    assert abs(found.elpd - own.sum()) < 4 * error + 0.02
    assert error < 0.2
    assert np.abs(found.elpd_i.values - own).max() < 0.15
    assert not found.warning
    # It is no near miss of the training density, which the parameters used raise.
    assert found.elpd + found.p - own.sum() > 2


def test_loo_of_a_wrong_q_is_corrected_by_its_weights(exact):
    """q with its mean moved by half a standard deviation: plain LOO is wrong, weighed LOO right."""
    own = exact_loo()[0].sum()
    L = np.linalg.cholesky(gram())
    cov = np.linalg.inv(np.eye(N) + L.T @ L / NOISE**2)
    root = np.linalg.cholesky(cov)
    loc = cov @ L.T @ Y / NOISE**2 + 0.15 * root @ np.ones(N)
    params = {
        "l1.v.loc": jnp.asarray(loc, jnp.float32)[:, None],
        "l1.v.scale_tril": jnp.asarray(1.05 * root, jnp.float32)[None],
    }
    guide = dgp.MeanField(conjugate)
    tree = dgp.to_inferencedata(KEY, conjugate, guide, params, X, Y, num_samples=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the Pareto k of some rows
        plain, weighed = (criticism.loo(tree, correct=c).elpd for c in (False, True))
    assert abs(weighed - own) < 0.5 * abs(plain - own)


def test_loo_pit_is_that_of_the_closed_form(exact):
    mean, var = exact_loo()[1]
    wanted = np.asarray(jax.scipy.stats.norm.cdf((Y - mean) / np.sqrt(var)))
    assert np.abs(criticism.loo_pit(exact) - wanted).max() < 0.06


def test_stacking_prefers_the_model_that_made_the_data(exact):
    def flat(x, y=None):
        level = numpyro.sample("level", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(level, 1.0), obs=y)

    guide = AutoNormal(flat)
    params = {"level_auto_loc": jnp.asarray(0.0), "level_auto_scale": jnp.asarray(0.2)}
    other = dgp.to_inferencedata(KEY, flat, guide, params, X, Y)
    table = criticism.stacking({"flat": other, "gp": exact})
    assert table.index[0] == "gp"
    assert float(table.loc["gp", "weight"]) > 0.9
    assert table["elpd"].astype(float)["gp"] == pytest.approx(criticism.loo(exact).elpd, abs=0.06)
    with pytest.raises(ValueError, match="wanted two and more"):
        criticism.stacking({"gp": exact})
    moved = dgp.to_inferencedata(KEY, flat, guide, params, X, Y + 1.0)
    with pytest.raises(ValueError, match="of different data"):
        criticism.stacking({"flat": moved, "gp": exact})


def test_waic_is_its_formula():
    terms = np.random.default_rng(0).normal(-1, 0.2, (2, 50, 7))
    tree = from_dict({"log_likelihood": {"y": terms}, "posterior": {"a": terms[..., 0]}})
    found = criticism.waic(tree)
    flat = terms.reshape(100, 7)
    elpd_i = np.log(np.exp(flat).mean(axis=0)) - flat.var(axis=0, ddof=1)
    np.testing.assert_allclose(found.elpd_i, elpd_i)
    assert found.elpd == pytest.approx(elpd_i.sum())
    assert found.se == pytest.approx(np.sqrt(7) * elpd_i.std())
    assert not found.warning
    with pytest.warns(UserWarning, match="7 of 7 rows"):
        assert criticism.waic(from_dict({"log_likelihood": {"y": 5 * terms}})).warning


def calibrated(rng, num, scale=1.0, counts=False):
    y = rng.normal(size=num) if not counts else rng.poisson(2.0, size=num)
    size = (2, 500, num)
    draws = scale * rng.normal(size=size) if not counts else rng.poisson(2.0, size=size)
    return from_dict({"observed_data": {"y": y}, "posterior_predictive": {"y": draws}})


@pytest.mark.parametrize("counts", [False, True])
def test_pit_is_uniform_where_draws_are_calibrated(counts):
    tree = calibrated(np.random.default_rng(0), 4000, counts=counts)
    found = criticism.calibration(criticism.pit(tree))
    assert found.p_value > 0.01
    error = np.sqrt(found.levels * (1 - found.levels) / 4000)
    assert (np.abs(found.coverage - found.levels) < 4 * error).all()
    assert ((found.lower <= found.levels) & (found.levels <= found.upper)).all()


def test_intervals_that_are_too_narrow_show():
    found = criticism.calibration(
        criticism.pit(calibrated(np.random.default_rng(0), 1000, scale=0.5)), [0.5, 0.9]
    )
    # Of a standard normal, what a normal of half the spread calls 50 and 90 %.
    wanted = 2 * np.asarray(jax.scipy.stats.norm.cdf(0.5 * jax.scipy.stats.norm.ppf(
        jnp.asarray([0.75, 0.95])))) - 1  # fmt: skip
    np.testing.assert_allclose(found.coverage, wanted, atol=4 * np.sqrt(0.25 / 1000))
    assert (found.coverage < found.lower).all()
    assert found.p_value < 1e-6
    for values in ([], [1.2], [-0.1]):
        with pytest.raises(ValueError, match="calibration: values are"):
            criticism.calibration(values)


def test_posterior_checks_tell_what_is_not_reproduced():
    tree = calibrated(np.random.default_rng(0), 400, scale=0.5)
    table = criticism.posterior_check(tree, {"sd": np.std, "median": np.median})
    assert list(table.index) == ["sd", "median"]
    assert table.loc["sd", "p_value"] == 0.0
    assert 0.01 < table.loc["median", "p_value"] < 0.99
    assert table.loc["sd", "observed"] == pytest.approx(tree["observed_data"]["y"].values.std())
    assert table.loc["sd", "upper"] < table.loc["sd", "observed"]
    with pytest.raises(ValueError, match="wanted predictions too"):
        criticism.posterior_check(tree, group="predictions")


@pytest.mark.slow
def test_rows_that_are_not_left_out_whole_are_told():
    def noisy(x, y=None):
        f1 = dgp.gp("l1", KERNEL, jnp.asarray(X[::5], float))
        f2 = dgp.gp("l2", KERNEL, jnp.asarray(X[::5], float))
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f2(f1.sample(x)), lambda f: dist.Normal(f, 1.0)), obs=y)

    prior = Predictive(noisy, num_samples=100)(KEY, X)
    samples = {n: 0.1 * prior[n] for n in ("l1.v", "l2.v")}
    few, many = (
        dgp.to_inferencedata(
            KEY, noisy, None, {}, X, Y, posterior_samples=samples, passes=passes,
            num_prior_samples=0,
        )
        for passes in (1, 200)
    )  # fmt: skip
    with pytest.warns(UserWarning, match="by 1 passes"):
        criticism.loo(few)
    assert many["log_likelihood"]["y"].attrs["noise_error"] < 0.1
    criticism.loo(many)
    w = [jnp.linspace(0, 1, 4)[:, None]]
    kwargs = {"z": w, "out": 1}
    guide = dgp.MeanField(models.gplvm)
    latent = dgp.fit(KEY, models.gplvm, guide, None, Y, steps=2, progress=False, **kwargs)
    tree = dgp.to_inferencedata(
        KEY, models.gplvm, guide, latent.params, None, Y, num_samples=50, **kwargs
    )
    with warnings.catch_warnings(record=True) as told:  # of Pareto k too, perhaps
        warnings.simplefilter("always")
        criticism.loo(tree)
    assert "own latent inputs" in str(told[0].message)


def test_trees_without_what_is_asked_for():
    tree = from_dict({"posterior": {"a": np.zeros((1, 9))}})
    for function in (criticism.loo, criticism.waic, criticism.loo_pit):
        with pytest.raises(ValueError, match="wanted log_likelihood"):
            function(tree)
    with pytest.raises(ValueError, match="wanted posterior_predictive too"):
        criticism.pit(tree)


def test_both_of_numpyros_diagnostics_in_one_call():
    """At the exact posterior nothing is wrong; with a quarter of its spread all of it is."""
    tree_guide = dgp.MeanField(conjugate)
    L = np.linalg.cholesky(gram())
    cov = np.linalg.inv(np.eye(N) + L.T @ L / NOISE**2)
    params = {
        "l1.v.loc": jnp.asarray(cov @ L.T @ Y / NOISE**2, jnp.float32)[:, None],
        "l1.v.scale_tril": jnp.asarray(np.linalg.cholesky(cov), jnp.float32)[None],
    }
    x, y = jnp.asarray(X), jnp.asarray(Y)
    check = dgp.check_guide(
        KEY, conjugate, tree_guide, params, x, y, num_simulations=40, steps=600,
        learning_rate=0.03,
    )  # fmt: skip
    assert check.khat is not None
    assert check.khat < 0.5
    assert check.p_values is not None
    assert check.p_values["l1.v"].shape == (N, 1)
    assert check.biased_share is not None
    assert check.biased_share < 0.25
    assert "VSBC" in str(check)
    narrow = {**params, "l1.v.scale_tril": 0.25 * params["l1.v.scale_tril"]}
    wrong = dgp.check_guide(KEY, conjugate, tree_guide, narrow, x, y, num_simulations=0)
    assert wrong.khat is not None
    assert wrong.khat > 0.7
    assert wrong.p_values is None
    with pytest.raises(ValueError, match="by position"):
        dgp.check_guide(KEY, conjugate, tree_guide, params, x)
    with pytest.raises(ValueError, match="num_simulations is 1"):
        dgp.check_guide(KEY, conjugate, tree_guide, params, x, y, num_simulations=1)
