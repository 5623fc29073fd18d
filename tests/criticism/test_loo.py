"""LOO against its closed form, WAIC and stacking."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_base import from_dict
from arviz_stats import loo_approximate_posterior
from numpyro.infer import NUTS
from numpyro.infer.autoguide import AutoNormal
from support import trees
from support.conjugate import KEY, X, Y, conjugate, exact_loo, exact_tree, guide_params, posterior
from support.helpers import slow
from support.trees import converted, deep

import dgp_ppl as dgp
from dgp_ppl import criticism


@pytest.fixture(scope="module")
def exact():
    return exact_tree()


@pytest.fixture(scope="module")
def sampled():
    chains = dgp.run_mcmc(
        KEY, NUTS(conjugate), jnp.asarray(X), jnp.asarray(Y), num_warmup=300, num_samples=1000,
        num_chains=4, progress=False,
    )  # fmt: skip
    return dgp.to_inferencedata(
        KEY, conjugate, None, {}, X, Y, posterior_samples=chains, num_samples=4000
    )


def in_parts(tree, parts):
    """LOO of parts of the draws; with few draws some Pareto k are large."""
    each = tree["posterior"].sizes["draw"] // parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [slice(i * each, (i + 1) * each) for i in range(parts)]
        return [criticism.loo(tree.isel(draw=r)).elpd for r in rows]


@pytest.mark.parametrize("route", ["exact", slow("sampled")])
def test_loo_is_the_closed_form(route, request):
    tree = request.getfixturevalue(route)
    found = criticism.loo(tree)
    assert "loo_bias" not in tree["log_likelihood"]["y"].attrs  # one layer has no hidden noise
    true, _ = exact_loo()
    # The standard error of the estimate, from the spread of LOO over eighths of the draws.
    parts = in_parts(tree, 8)
    error = np.std(parts, ddof=1) / np.sqrt(8)
    assert abs(found.elpd - true.sum()) < 4 * error + 0.02
    assert error < 0.2
    assert np.abs(found.elpd_i.values - true).max() < 0.15
    assert not found.warning
    # The training log density is clearly higher: it exceeds LOO by the effective parameters.
    assert found.elpd + found.p - true.sum() > 2


def test_loo_of_a_wrong_q_is_corrected_by_its_weights():
    """The mean of q is off by 0.15 standard deviations: plain LOO is wrong, weighted LOO right."""
    true = exact_loo()[0].sum()
    loc, cov = posterior()
    root = np.linalg.cholesky(cov)
    params = guide_params(loc + 0.15 * root @ np.ones(len(loc)), 1.05 * root)
    guide = dgp.MeanField(conjugate)
    tree = dgp.to_inferencedata(KEY, conjugate, guide, params, X, Y, num_samples=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large Pareto k in some rows
        plain, weighted = (criticism.loo(tree, correct=c).elpd for c in (False, True))
    assert abs(weighted - true) < 0.5 * abs(plain - true)


@pytest.mark.slow
def test_the_weights_of_q_need_no_correction_of_few_passes():
    """The estimate of p(y_n | v) in p(y, v) / q(v) cancels where y_n is left out."""
    tree = converted(deep, trees.X, trees.Y, options={"num_samples": 60, "passes": 3})
    correction = tree["constant_data"]["y_loo_correction"]
    assert correction.dims == ("data",)
    assert (correction > 0).all()
    raw = (tree["log_likelihood"]["y"] - correction).values
    total = tree["log_likelihood"]["y"].values.sum(axis=-1)
    found = from_dict({"log_likelihood": {"y": raw}, "posterior": {"a": total}})
    log_p, log_q = (tree["sample_stats"][n].values.ravel() for n in ("lp", "log_q"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large Pareto k
        weighted = criticism.loo(tree, correct=True)
        wanted = loo_approximate_posterior(found, log_p=log_p, log_q=log_q, pointwise=True)
    np.testing.assert_allclose(weighted.elpd_i, wanted.elpd_i, rtol=1e-5)


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="wanted two or more"):
        criticism.stacking({"gp": exact})
    moved = dgp.to_inferencedata(KEY, flat, guide, params, X, Y + 1.0)
    with pytest.raises(ValueError, match="have different data"):
        criticism.stacking({"flat": moved, "gp": exact})


def test_few_draws_are_refused():
    rng = np.random.default_rng(0)
    tree = from_dict({"posterior": {"a": np.zeros((2, 12))}, "log_likelihood": {
        "y": rng.normal(size=(2, 12, 4))}})  # fmt: skip
    with pytest.raises(ValueError, match="has 24 draws, wanted at least 25"):
        criticism.loo(tree)


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


def test_log_likelihoods_in_float32_that_spread_widely():
    """A short fit's draws differ by 100s of nats, whose ratios underflow; LOO was NaN."""
    rng = np.random.default_rng(0)
    values = (1.5 - 3.0 * rng.standard_gamma(0.5, (1, 50, 40)) ** 3).astype(np.float32)
    assert np.ptp(values, axis=1).max() > 100
    y = rng.standard_normal(40)
    tree = from_dict(
        {
            "posterior": {"v": rng.standard_normal((1, 50))},
            "log_likelihood": {"y": values},
            "observed_data": {"y": y},
            "posterior_predictive": {"y": y + rng.standard_normal((1, 50, 40))},
        }
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter")
        found = criticism.loo(tree)
        assert np.isfinite([found.elpd, found.se, found.p]).all()
        assert np.isfinite(found.elpd_i).all()
        assert np.isfinite(criticism.loo_pit(tree)).all()
    assert tree["log_likelihood"]["y"].dtype == np.float32  # the given one is unchanged
