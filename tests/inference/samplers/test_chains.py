"""Draws of several chains: their shape, thinning and grouping."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC
from numpyro.infer.hmc import HMC
from support.helpers import KEY

from dgp_ppl.inference.samplers._chains import Chains, draws_of

CHAINS = Chains({"w": np.arange(20.0).reshape(2, 10)}, {"diverging": np.zeros((2, 10), bool)})


def test_draws_are_grouped_when_asked_for():
    assert CHAINS.shape == (2, 10)
    np.testing.assert_array_equal(CHAINS.get_samples()["w"], np.arange(20.0))
    assert CHAINS.get_samples(group_by_chain=True)["w"].shape == (2, 10)


def test_spaced_draws_are_the_first_the_last_and_some_between():
    few = CHAINS.spaced(4)
    np.testing.assert_array_equal(few.samples["w"], [[0, 3, 6, 9], [10, 13, 16, 19]])
    assert few.fields["diverging"].shape == (2, 4)
    assert CHAINS.spaced(99).shape == (2, 10)


def weighted(log_weights):
    return Chains(CHAINS.samples, CHAINS.fields, log_weights=np.asarray(log_weights))


def test_weighted_draws_are_there_in_proportion():
    """Each as often as its weight says, rounded up or down, over the draws of all chains."""
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=(2, 10))
    chains = weighted(np.log(weights) - 700).spaced(10)
    times = np.bincount(chains.samples["w"].ravel().astype(int), minlength=20)
    wanted = 20 * weights.ravel() / weights.sum()
    assert times.sum() == 20
    assert (np.abs(times - wanted) < 1).all()
    np.testing.assert_allclose(
        chains.fields["log_weight"].ravel(),
        np.log(weights.ravel())[chains.samples["w"].ravel().astype(int)] - 700,
    )
    assert chains.fields["diverging"].shape == (2, 10)
    assert weighted(np.log(weights)).spaced(3).shape == (2, 3)


def test_draws_and_weights_of_other_shapes():
    few, gone = np.zeros(3), np.full((2, 10), -np.inf)
    for samples, log_weights in ((CHAINS.samples, few), (CHAINS.samples, gone), ({"w": few}, None)):
        with pytest.raises(ValueError, match=r"^Chains: "):
            Chains(samples, log_weights=log_weights)
    with pytest.raises(TypeError, match=r"Chains: samples is a tuple, wanted a dict of draws"):
        Chains(())  # type: ignore


def test_from_numpyros_mcmc():
    """NumPyro drops the chains' axis of the state of a single chain."""

    def model():
        numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))

    mcmc = MCMC(HMC(model), num_warmup=2, num_samples=4, progress_bar=False)
    with pytest.raises(ValueError, match="this MCMC has not run yet"):
        Chains.from_mcmc(mcmc)
    mcmc.run(KEY, extra_fields=("potential_energy",))
    chains = Chains.from_mcmc(mcmc)
    for given in (mcmc, chains):  # of predict and others
        np.testing.assert_array_equal(draws_of("", given).samples["w"], chains.samples["w"])
    assert chains.shape == (1, 4)
    assert chains.samples["w"].shape == (1, 4, 3)
    assert chains.fields["potential_energy"].shape == (1, 4)
    assert chains.state.i.shape == (1,)
    assert chains.steps == 6
