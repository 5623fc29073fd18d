"""PIT, coverage and posterior predictive checks of calibrated and other draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_base import from_dict
from support.conjugate import Y, exact_loo, exact_tree

from dgp_ppl import criticism


@pytest.mark.slow
def test_loo_pit_is_that_of_the_closed_form():
    mean, var = exact_loo()[1]
    wanted = np.asarray(jax.scipy.stats.norm.cdf((Y - mean) / np.sqrt(var)))
    assert np.abs(criticism.loo_pit(exact_tree()) - wanted).max() < 0.06


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
    # Probability under N(0, 1) of the central 50 and 90 % intervals of N(0, 0.5²).
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
