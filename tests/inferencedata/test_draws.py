"""Draws of guides and chains, and their densities."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from support.trees import KEY, X, Y

import dgp_ppl as dgp
from dgp_ppl import initialize, models


def test_draws_of_a_guide_give_back_its_predictions_and_its_bound():
    """Predictive draws have the moments of `predict`, and log weights average to the bound."""
    model, kwargs = models.deep_gp, initialize.deep_gp(KEY, X, num_inducing=5, depth=1)
    guide = dgp.MeanField(model)
    params = dgp.fit(KEY, model, guide, X, Y, steps=50, progress=False, **kwargs).params
    tree = dgp.to_inferencedata(
        KEY, model, guide, params, X, Y, num_samples=400, num_prior_samples=0, **kwargs
    )
    draws = tree["posterior_predictive"]["y"].values[0]
    p = dgp.predict(KEY, model, guide, params, X, num_samples=400, **kwargs)
    error = np.sqrt(p.var / len(draws))
    assert (np.abs(draws.mean(axis=0) - p.mean) < 5 * error).all()
    spread = draws.var(axis=0, ddof=1) / p.var
    assert (np.abs(spread - 1) < 5 * np.sqrt(2 / len(draws)) * 1.5).all()
    weights = tree["sample_stats"]["log_weight"].values[0]
    loss = jax.jit(lambda p: guide.bound_loss.loss(KEY, p, model, guide, X, Y, **kwargs))
    # The bound contains E log p(y | f), the weights log E p(y | f), which is at least as large.
    assert weights.mean() > -loss(params) - 4 * weights.std() / 20


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_weighted_rows_have_weights_in_joint_densities():
    """At the posterior of weighted rows, the log weight of each draw is their evidence."""
    w = np.array([0.5, 2.0, 3.0])
    y, total = np.array([1.0, -0.5, 0.3]), 1 + w.sum()  # p(t) = N(0, 1), p(y | t) = N(t, 1)

    def model(x, y=None, w=None):
        with handlers.scale(scale=2.0):
            numpyro.factor("twice", -0.5)
        t = numpyro.sample("t", dist.Normal(0, 1))
        with dgp.minibatch(x, y, w) as (x, y, w), handlers.scale(scale=w):
            numpyro.sample("y", dist.Normal(t, 1).expand([3]), obs=y)

    def guide(x, y=None, w=None):
        numpyro.sample("t", dist.Normal(w @ y / total, total**-0.5))

    tree = dgp.to_inferencedata(KEY, model, guide, {}, np.zeros((3, 1)), y, w, num_samples=30)
    half = np.log(2 * np.pi) / 2
    evidence = (w @ y) ** 2 / total / 2 - w @ y**2 / 2 - w.sum() * half - np.log(total) / 2 - 1
    np.testing.assert_allclose(tree["sample_stats"]["log_weight"], evidence, rtol=1e-5)
    with pytest.warns(UserWarning, match=r"rows are weighted, by handlers\.scale"):
        dgp.criticism.loo(tree)


def test_chains_keep_their_axes_and_what_the_sampler_told():
    def whole(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(x @ w, 0.3), obs=y)

    fields = ("potential_energy", "accept_prob", "num_steps", "diverging")
    mcmc = MCMC(NUTS(whole), num_warmup=20, num_samples=8, num_chains=2, progress_bar=False,
                chain_method="vectorized")  # fmt: skip
    x, y = jnp.asarray(X), jnp.asarray(Y)
    mcmc.run(KEY, x, y, extra_fields=fields)
    chains = dgp.Chains.from_mcmc(mcmc)
    tree = dgp.to_inferencedata(
        KEY, whole, None, {}, x, y, posterior_samples=chains, num_prior_samples=0
    )
    w = np.asarray(mcmc.get_samples(group_by_chain=True)["w"])
    np.testing.assert_array_equal(tree["posterior"]["w"], w)
    wanted = dist.Normal(np.einsum("nd,csd->csn", X, w), 0.3).log_prob(Y)
    np.testing.assert_allclose(tree["log_likelihood"]["y"], wanted, rtol=1e-4, atol=1e-4)
    stats = set(tree["sample_stats"].data_vars)
    assert stats >= {"lp", "acceptance_rate", "n_steps", "diverging"}
    np.testing.assert_allclose(
        tree["sample_stats"]["lp"], -np.asarray(mcmc.get_extra_fields(True)["potential_energy"])
    )
