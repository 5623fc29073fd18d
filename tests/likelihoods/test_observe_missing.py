"""`observe` with a mask of missing targets."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import slow

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals

RNG = np.random.default_rng(0)
MEAN = jnp.asarray(1.5 * RNG.standard_normal((6, 4)), jnp.float32)
VAR = jnp.asarray(RNG.uniform(0.05, 2.0, (6, 4)), jnp.float32)


def missing(name, mask):
    with numpyro.handlers.seed(rng_seed=0):
        return dgp.observe(Marginals(MEAN, VAR, True), getattr(likelihoods, name), mask=mask)


@pytest.mark.parametrize("name", ["normal", "poisson", "robust_max"])
def test_missing_rows_add_nothing(name):
    """Missing rows do not affect values or gradients of the other rows."""
    likelihood_of = {
        "normal": lambda f: dist.Normal(f, 0.3), "poisson": lambda f: dist.Poisson(jnp.exp(f)),
        "robust_max": likelihoods.robust_max,
    }  # fmt: skip
    wide = name == "robust_max"
    mean = MEAN if wide else MEAN[:, :1]
    y = jnp.array([0, 1, 1, 9, 0, -7]) if wide else jnp.array([0.0, 1, 1, jnp.nan, 0, -7])
    mask = jnp.arange(6) < 3

    def terms(mean, y, **options):
        with numpyro.handlers.seed(rng_seed=0):
            marginals = Marginals(mean, VAR[:, : mean.shape[1]], True)
            return dgp.observe(marginals, likelihood_of[name], **options).log_prob(y)

    found = terms(mean, y, mask=mask)
    np.testing.assert_allclose(found[:3], terms(mean, jnp.where(mask, y, 0))[:3], rtol=1e-6)
    np.testing.assert_array_equal(found[3:], 0.0)
    gradient = jax.grad(lambda m: terms(m, y, mask=mask).sum())(mean)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[3:], 0.0)


@pytest.mark.parametrize(("closed", "guided"), [(True, True), slow(False, False)])
def test_missing_entries_add_nothing(closed, guided):
    """The density is that of a model of the observed entries alone."""
    y = jnp.asarray(RNG.standard_normal((6, 4)), jnp.float32)
    mask = jnp.asarray(RNG.uniform(size=(6, 4)) < 0.5).at[0].set(False)
    scale = (lambda f: 0.3) if closed else lambda f: 1 + 0 * f  # the latter needs Monte Carlo

    def terms(columns, y, **options):
        def likelihood(f):
            return dist.Normal(f, scale(f)).to_event(1)

        marginals = Marginals(MEAN[:, columns], VAR[:, columns], guided)
        with numpyro.handlers.seed(rng_seed=0):
            return dgp.observe(marginals, likelihood, num_draws=100_000, **options).log_prob(y)

    found = terms(slice(None), jnp.where(mask, y, jnp.nan), mask=mask)
    assert found[0] == 0.0
    for row in range(1, 6):
        kept = np.flatnonzero(mask[row])
        alone = terms(kept, y[:, kept])[row] if len(kept) > 1 else None
        if alone is not None:
            np.testing.assert_allclose(found[row], alone, rtol=1e-5 if closed else 0.05)


def test_a_mask_of_the_wrong_shape():
    with pytest.raises(ValueError, match=r"mask has shape \(5,\), wanted \(6,\) for this"):
        missing("robust_max", jnp.ones(5, bool))
    with pytest.raises(ValueError, match=r"mask has shape \(6, 4\), wanted \(6,\) for this"):
        missing("softmax", jnp.ones((6, 4), bool))
