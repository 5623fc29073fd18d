"""Warnings and errors for trees whose groups do not fit a check."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_base import from_dict
from numpyro.infer import Predictive
from support.conjugate import KERNEL, KEY, X, Y

import dgp_ppl as dgp
from dgp_ppl import criticism, models


@pytest.mark.slow
def test_rows_that_are_not_left_out_whole_are_told():
    def noisy(x, y=None):
        f1 = dgp.gp("l1", KERNEL, jnp.asarray(X[::5], float))
        f2 = dgp.gp("l2", KERNEL, jnp.asarray(X[::5], float))
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f2(f1.sample(x)), lambda f: dist.Normal(f, 1.0)), obs=y)

    prior = Predictive(noisy, num_samples=100)(KEY, X)
    samples = {n: 0.1 * prior[n] for n in ("l1.v", "l2.v")}
    few, many = (
        dgp.to_inferencedata(
            KEY, noisy, None, {}, X, Y, posterior_samples=samples, passes=passes,
            num_prior_samples=0,
        )
        for passes in (1, 200)
    )  # fmt: skip
    with pytest.warns(
        UserWarning, match="by passes=1, which gives .* an unknown bias; set passes=10"
    ):
        criticism.loo(few)
    assert many["log_likelihood"]["y"].attrs["noise_error"] < 0.1
    with warnings.catch_warnings():  # of a hundred draws, one row's k-hat may be above 0.5
        warnings.filterwarnings("ignore", "Estimated shape parameter")
        criticism.loo(many)
    w = [jnp.linspace(0, 1, 4)[:, None]]
    kwargs = {"z": w, "out": 1}
    guide = dgp.MeanField(models.gplvm)
    latent = dgp.fit(KEY, models.gplvm, guide, None, Y, steps=2, progress=False, **kwargs)
    tree = dgp.to_inferencedata(
        KEY, models.gplvm, guide, latent.params, None, Y, num_samples=50, **kwargs
    )
    with warnings.catch_warnings(record=True) as caught:  # perhaps of Pareto k too
        warnings.simplefilter("always")
        criticism.loo(tree)
    assert "own latent inputs" in str(caught[0].message)


def test_trees_without_what_is_asked_for():
    tree = from_dict({"posterior": {"a": np.zeros((1, 9))}})
    for function in (criticism.loo, criticism.waic, criticism.loo_pit):
        with pytest.raises(ValueError, match="wanted log_likelihood"):
            function(tree)
    with pytest.raises(ValueError, match="wanted posterior_predictive too"):
        criticism.pit(tree)
