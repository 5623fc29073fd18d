"""The density of the Bayesian neural network, and draws of SGPR."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import Predictive
from support.helpers import (
    KEY,
    assert_mean,
    no_guide,
    regression,
    spread,
    squared_exponential,
)
from support.objectives import NOISE, hyperparameters

from dgp_ppl import evaluate, fit, models
from dgp_ppl.models._sgpr import CollapsedNormal


def test_the_network_is_what_it_says():
    """The log density of the model at a draw equals NumPy's."""
    x, y = regression(rows=5, dim=2)
    with handlers.seed(rng_seed=0):
        trace = handlers.trace(models.bnn).get_trace(x, y, hidden=(3,))
    s = {n: np.asarray(site["value"], np.float64) for n, site in trace.items() if n != "data"}
    h = np.maximum(np.asarray(x) @ s["w1"] / np.sqrt(2) + s["b1"], 0)
    f = (h @ s["w2"] / np.sqrt(3) + s["b2"])[:, 0]
    expected = -0.5 * ((s["y"] - f) / s["noise"]) ** 2 - np.log(s["noise"] * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(trace["y"]["fn"].log_prob(y), expected, rtol=1e-4)


def test_sgpr_draws_from_its_low_rank_normal(x64):
    x, _ = regression(rows=6)
    z = spread(4)
    draw = Predictive(models.sgpr, params=hyperparameters(z), num_samples=6000)
    y = draw(KEY, x, z=z)["y"]
    Kzx = squared_exponential(z, x)
    cov = Kzx.T @ np.linalg.solve(squared_exponential(z, z), Kzx) + NOISE**2 * np.eye(6)
    assert_mean(y, np.zeros(6))
    assert_mean(y[:, :, None] * y[:, None, :], cov)


def test_rows_that_do_not_count_leave_the_collapsed_bound_as_it_is(x64):
    x, y = regression(rows=8)

    def bound(x, y, **options):
        params = hyperparameters(spread(4))
        return -evaluate(KEY, models.sgpr, no_guide, params, x, y, z=spread(4), **options)[0]

    counts = np.array([True] * 3 + [False] + [True] * 4)
    wrong = y.at[3].set(1e3)
    want = bound(x[counts], y[counts])
    np.testing.assert_allclose(bound(x, wrong, counts=counts), want, rtol=1e-12)
    site = CollapsedNormal(jnp.ones((2, 8)), jnp.ones(8), 0.3, jnp.asarray(counts))
    found = jax.jit(lambda site: site.log_prob(wrong))(site)  # all of it is an argument
    np.testing.assert_allclose(found, site.log_prob(wrong), rtol=1e-12)
    options = {"z": spread(4), "steps": 1, "progress": False}
    assert fit(KEY, models.sgpr, no_guide, x, y, counts=counts, **options).num_data == 7


def test_the_collapsed_bound_of_tiny_noise_is_below_the_evidence():
    """y'y / noise² less what A explains of it would be off by more than the bound."""
    rng = np.random.default_rng(0)
    A, noise = rng.normal(size=(5, 30)).astype(np.float32), np.float32(1e-5)
    y = (rng.normal(size=5) @ A).astype(np.float32)
    site = CollapsedNormal(jnp.asarray(A), jnp.zeros(30), noise)
    # With the exact eigenvalues of A A': the least that the fit's term can be is 0.
    log_det = np.log1p(np.linalg.svd(A, compute_uv=False) ** 2 / float(noise) ** 2).sum()
    most = -0.5 * (30 * np.log(2 * np.pi * float(noise) ** 2) + log_det)
    assert most - 200 < site.log_prob(jnp.asarray(y)) < most
