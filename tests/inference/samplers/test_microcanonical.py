"""Microcanonical samplers: known and other posteriors, statistics of the sampler, and errors."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY

from dgp_ppl import AdjustedMCLMC, BlackJAXKernel, run_mcmc

DIM = 20
SD = jnp.logspace(-2, 0, DIM)  # variances from 1e-4 to 1
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0]


def gaussian():
    numpyro.sample("x", dist.Normal(3 * SD, SD).to_event(1))


def rotated():
    """The same variances in other directions, which scales of coordinates cannot remove."""
    root = jnp.asarray(BASIS * np.asarray(SD), float)
    covariance = root @ root.T + 1e-8 * jnp.eye(DIM)
    numpyro.sample("x", dist.MultivariateNormal(jnp.asarray(BASIS) @ (3 * SD), covariance))


@pytest.mark.slow
def test_adjusted_draws_of_an_ill_conditioned_gaussian(x64):
    """Means and variances are right in every direction.

    A threshold of 5 standard errors from 16 chains (a t distribution with 15 degrees of freedom)
    is passed by chance in one of 300 runs of 40 tests.
    """
    for model in (gaussian, rotated):
        kernel, options = AdjustedMCLMC(model), {"num_warmup": 500, "num_chains": 16}
        chains = run_mcmc(KEY, kernel, num_samples=600, progress=False, **options)
        assert "size" in kernel.get_diagnostics_str(jax.tree.map(lambda a: a[0], chains.state))
        x = np.asarray(chains.samples["x"], np.float64)
        draws = (x @ BASIS if model is rotated else x) / np.asarray(SD) - 3  # standard normal
        for values in (1 + draws.mean(axis=1), np.square(draws).mean(axis=1)):
            gap, error = values.mean(axis=0) - 1, values.std(axis=0, ddof=1) / 4
            assert error.max() < 0.06
            assert (np.abs(gap) < 5 * error).all(), (gap / error).round(1)
        assert 0.85 < chains.fields["accept_prob"].mean() < 0.97
        assert not chains.fields["diverging"].any()


def cliff():
    x = numpyro.sample("x", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.factor("cliff", jnp.where(x[0] > 0.5, jnp.nan, 0.0) * x[0])


@pytest.mark.slow
def test_a_step_that_is_not_finite_moves_nothing():
    kernel = BlackJAXKernel(cliff, lambda density: blackjax.mclmc(density, 1.0, 0.5))
    start, sizes = {"x": jnp.zeros(2)}, {"num_warmup": 50, "num_samples": 200}
    with pytest.warns(UserWarning, match="of the draws diverge"):
        chains = run_mcmc(KEY, kernel, **sizes, init_params=start, progress=False)
    diverging, x = chains.fields["diverging"][0], chains.samples["x"][0]
    assert (x[:, 0] < 0.5).all()
    assert not diverging.all()
    assert diverging.any()
    stuck = np.flatnonzero(diverging[1:]) + 1
    np.testing.assert_array_equal(x[stuck], x[stuck - 1])
