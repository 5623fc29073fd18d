"""R-hat of predictions at fixed rows."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.criticism import chain_diagnostics, prediction_diagnostics

X = jnp.linspace(-1, 1, 7)[:, None]
Y = np.linspace(-0.5, 1.5, 7)


def ridge(x, y=None):
    """Only the sum of two values matters to f."""
    f = dgp.gp("f", dgp.kernels.SquaredExponential(1.0, 1.0), X[::3])
    shift = numpyro.sample("a", dist.Normal(0, 1)) + numpyro.sample("b", dist.Normal(0, 1))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + shift, 0.3)), obs=y)


def drawn(total, chains=4, draws=200):
    """Chains that are far apart along the ridge; `total` [C] is their mean across it."""
    rng = np.random.default_rng(0)
    a = 5 * np.arange(chains)[:, None] + rng.standard_normal((chains, draws))
    sums = np.asarray(total)[:, None] + rng.standard_normal((chains, draws))
    v = rng.standard_normal((chains, draws, 3, 1))
    return dgp.Chains({"f.v": v, "a": a, "b": sums - a})


def diagnosed(chains, **options):
    return prediction_diagnostics(KEY, ridge, {}, X, Y, posterior_samples=chains, **options)


def test_directions_that_predictions_do_not_see():
    chains = drawn(np.zeros(4))
    assert chain_diagnostics(chains)["rhat"] > 2
    found = diagnosed(chains, num_draws=200)
    assert found["rhat_predictions"] < 1.05
    assert found["rhat_log_density"] < 1.05
    assert found["ess_predictions"] > 200


def test_chains_that_predict_differently():
    found = diagnosed(drawn([0.0, 3.0, 0.0, 3.0]), num_noise=2)
    assert found["rhat_predictions"] > 1.3
    assert found["ess_predictions"] < 20


def test_noise_of_hidden_layers_does_not_look_like_mixing():
    """A draw predicts the same whenever it comes: chains that stay where they are have no R-hat."""
    v = np.random.default_rng(0).standard_normal((2, 5, 1))
    chains = dgp.Chains({f"l{i}.v": np.tile(v[i - 1], (4, 20, 1, 1)) for i in (1, 2)})
    z = X[:5]
    found = prediction_diagnostics(
        KEY, models.deep_gp, {}, X, Y, posterior_samples=chains, z=(z, z), num_noise=3
    )
    assert found["rhat_log_density"] is found["rhat_predictions"] is None


def test_draws_that_are_not_finite_have_not_mixed():
    chains = drawn(np.zeros(4))
    chains.samples["a"][0, 3] = np.nan
    assert chain_diagnostics(chains)["rhat"] == np.inf
    assert chain_diagnostics(chains)["ess"] == 0


def test_wrong_use():
    chains, few = drawn(np.zeros(4)), drawn(np.zeros(4), draws=3)
    for error, call, pattern in (
        (TypeError, lambda: diagnosed({"a": np.zeros(8)}), "posterior_samples is a dict"),
        (ValueError, lambda: diagnosed(few), "3 draws of each chain, wanted at least 4"),
        (ValueError, lambda: diagnosed(chains, num_noise=0), "num_noise is 0"),
    ):
        with pytest.raises(error, match=f"prediction_diagnostics: .*{pattern}"):
            call()
