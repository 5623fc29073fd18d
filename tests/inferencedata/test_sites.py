"""Which latent sites and which arguments have rows."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.lines import N, X, Y, grouped, tree_of


@pytest.mark.slow
def test_effects_of_outputs_are_no_rows():
    """Held-out rows use the draws of the intercepts, which must be given."""
    y = 0.7 * X[:, None] + jnp.zeros(3)
    samples = {"w": np.full(50, 0.7), "b": np.zeros((50, 3))}
    tree = tree_of(grouped, X, y, samples=samples, test=(X[:5], y[:5]))
    assert tree["predictions"]["y"].std("draw").max() < 0.2
    assert tree["log_likelihood"].attrs["latent_rows"] == "none"
    assert tree["posterior"]["b"].dims == ("chain", "draw", "output")
    whole, parts = (
        tree["log_likelihood"]["y"],
        tree_of(grouped, X, y, samples=samples, chunk_size=7),
    )
    np.testing.assert_allclose(parts["log_likelihood"]["y"], whole, rtol=1e-5)
    with pytest.raises(ValueError, match="has no draws of 'b'"):
        tree_of(grouped, X, y, samples={"w": samples["w"]})


@pytest.mark.slow
def test_rows_whose_only_latent_is_their_own():
    def effects(x, y=None):
        with numpyro.plate("data", len(x)):
            h = numpyro.sample("h", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(h * x, 0.3), obs=y)

    samples = {"h": np.zeros((9, N))}
    tree = tree_of(effects, X, Y, samples=samples, test=(X[:3], Y[:3]), chunk_size=7)
    np.testing.assert_allclose(
        tree["log_likelihood"]["y"][0, 0], dist.Normal(0, 0.3).log_prob(Y), rtol=1e-5
    )
    assert tree["predictions"]["y"].shape == (1, 9, 3)
