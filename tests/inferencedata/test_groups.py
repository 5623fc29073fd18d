"""Groups of a tree: targets, units and held-out rows."""

import warnings
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.lines import KEY, SCALE, N, X, Y, line, tree_of

import dgp_ppl as dgp


def columns(x, y=None, name="y"):
    return line_named(x[:, 0], y, name)


def line_named(x, y, name):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", len(x)):
        numpyro.sample(name, dist.Normal(w * x, 0.3), obs=y)


@pytest.mark.parametrize("name", ["y", "target"])
def test_the_target_that_is_given_is_the_one_that_is_stored(name):
    y = 1e6 + 20 * Y
    samples = {"w": np.full(200, 0.7)}
    tree = dgp.to_inferencedata(
        KEY, columns, None, {}, X[:, None], y, posterior_samples=samples, num_prior_samples=0,
        standardizer=SCALE, name=name, test=(X[:4, None], y[:4]),
    )  # fmt: skip
    np.testing.assert_array_equal(tree["observed_data"][name], y)
    drawn = tree["posterior_predictive"][name].values[0]
    error = 6.0 / np.sqrt(200)  # of a mean of draws with noise 0.3 * 20
    assert np.abs(drawn.mean(axis=0) - (1e6 + 14 * X)).max() < 5 * error
    wanted = dist.Normal(0.7 * X, 0.3).log_prob(Y) - np.log(20)
    np.testing.assert_allclose(tree["log_likelihood"][name][0, 0], wanted, rtol=1e-3, atol=1e-3)
    assert tree["predictions_constant_data"][name].shape == (4,)


def test_a_standardizer_wants_its_target_second():
    def third(x, c=None, y=None):
        return line_named(x[:, 0], y, "y")

    samples = {"w": np.full(5, 0.7)}
    options = {"samples": samples, "standardizer": SCALE}
    with pytest.raises(ValueError, match="wants y as the model's second argument"):
        tree_of(third, X[:, None], np.ones(N), Y, **options)
    with pytest.raises(ValueError, match="site is 'zz'"):
        tree_of(columns, X[:, None], Y, site="zz", **options)


def test_arviz_computes_loo_where_draws_differ_by_hundreds_of_nats():
    """The tree has log-likelihoods in float64; ArviZ returned NaN for float32."""
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    w = 0.7 + 2.0 * np.random.default_rng(0).standard_normal(100)
    tree = tree_of(line, X, Y, samples={"w": w})
    values = tree["log_likelihood"]["y"].values
    assert values.dtype == np.float64
    assert 200 < np.ptp(values) < 700
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter")  # large k-hats
        assert np.isfinite(statistics.loo(tree).elpd)
