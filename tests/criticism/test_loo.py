"""LOO against its closed form, and its checks."""

import warnings

import numpy as np
import pytest
from arviz_base import from_dict
from arviz_stats import loo_approximate_posterior
from support import trees
from support.conjugate import (
    KEY,
    NOISE,
    X,
    Y,
    conjugate,
    exact_loo,
    exact_tree,
    gram,
    guide_params,
    posterior,
)
from support.trees import converted, deep

import dgp_ppl as dgp
from dgp_ppl import criticism


def test_loo_is_the_closed_form():
    tree = exact_tree()
    found = criticism.loo(tree)
    assert "loo_bias" not in tree["log_likelihood"]["y"].attrs  # one layer has no hidden noise
    true, _ = exact_loo()
    # The standard error of the estimate, from the spread of LOO over eighths of the draws.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with few draws some Pareto k are large
        eighths = [tree.isel(draw=slice(500 * i, 500 * (i + 1))) for i in range(8)]
        parts = [criticism.loo(eighth).elpd for eighth in eighths]
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
        plain, weighted = (criticism.loo(tree, correct=c) for c in (False, True))
    assert abs(weighted.elpd - true) < 0.5 * abs(plain.elpd - true)
    smoother = gram() @ np.linalg.inv(gram() + NOISE**2 * np.eye(len(Y)))
    var = np.diag(gram() - smoother @ gram()) + NOISE**2
    seen = -0.5 * np.log(2 * np.pi * var) - 0.5 * (Y - smoother @ Y) ** 2 / var
    assert weighted.p == pytest.approx(seen.sum() - true, abs=0.1)


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


def attributed(**attributes):
    """Return a tree whose log-likelihood has these attributes."""
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.1, (2, 500, 4))
    tree = from_dict({"posterior": {"a": values[..., 0]}, "log_likelihood": {"y": values}})
    tree["log_likelihood"].attrs |= attributes
    return tree


def test_rows_whose_draws_tie():
    """As those of a confident classifier: LOO is by weights 1 / p there."""
    log_p = np.random.default_rng(0).normal(-1, 0.1, (1, 500, 4))
    log_p[..., 1], log_p[..., 2], log_p[0, 20:, 3] = 0, -0.2, 0
    tree = from_dict({"posterior": {"a": log_p[..., 0]}, "log_likelihood": {"y": log_p}})
    with pytest.warns(UserWarning, match="shape parameter of Pareto"):
        found = criticism.loo(tree)
    np.testing.assert_allclose(found.elpd_i, -np.log(np.exp(-log_p[0]).mean(axis=0)), atol=2e-3)
    assert (found.pareto_k.values > 0.7).tolist() == [False, False, False, True]


def test_biases_of_the_log_likelihood_are_told():
    noisy = {"hidden_noise": "integrated", "latent_rows": "none", "passes": 10}
    cases = [
        (attributed(**noisy | {"passes": 1}), "by passes=1, .* an unknown bias; set passes=10"),
        (attributed(latent_rows="given"), "own latent inputs"),
    ]
    biased = attributed(**noisy)
    biased["log_likelihood"]["y"].attrs["loo_bias"] = -3.0
    cases.append((biased, r"estimated bias of 3 nats, .* set passes=\d+"))
    for tree, pattern in cases:
        with pytest.warns(UserWarning, match=pattern):
            criticism.loo(tree)
    small = attributed(**noisy)
    small["log_likelihood"]["y"].attrs["loo_bias"] = 1e-4
    criticism.loo(small)  # no warning


def test_trees_without_what_loo_needs():
    rng = np.random.default_rng(0)
    a = {"a": np.zeros((2, 12))}
    few = {"posterior": a, "log_likelihood": {"y": rng.normal(size=(2, 12, 4))}}
    same = {"posterior": a, "log_likelihood": {"y": np.zeros((2, 12, 4))}}
    plain = attributed()
    for call, pattern in (
        (lambda: criticism.loo(from_dict({"posterior": a})), "wanted log_likelihood"),
        (lambda: criticism.loo(plain, "z"), "var_name is 'z'"),
        (lambda: criticism.loo(from_dict(few)), "24 draws, wanted at least 25"),
        (lambda: criticism.loo(from_dict(same)), "not a point mass"),
        (lambda: criticism.loo(plain, correct=True), "log_q"),
    ):
        with pytest.raises(ValueError, match=f"loo: .*{pattern}"):
            call()
