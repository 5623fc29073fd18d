"""Pickled results in this process and in a new one."""

import copy
import dataclasses
import pickle

import jax.numpy as jnp
import numpy as np
from jax import random
from support.fits import OPTIMIZER, SHALLOW, X, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.inference import Chains, MCEMResult
from dgp_ppl.models import svgp


def loaded(value):
    return pickle.loads(pickle.dumps(value))


def same(a, b):
    assert a.keys() == b.keys()
    return all(np.array_equal(a[n], b[n]) for n in a)


def test_a_fit_goes_on_after_pickling():
    fit = shallow(4, optimizer=None)
    again = loaded(fit)
    assert same(again.params, fit.params)
    assert (again.seconds, again.num_data) == (fit.seconds, fit.num_data)
    assert random.key_impl(again.state.rng_key) == random.key_impl(fit.state.rng_key)
    on, loaded_on = (shallow(2, start=f, optimizer=f.optimizer) for f in (fit, again))
    np.testing.assert_array_equal(on.losses, loaded_on.losses)
    assert same(on.params, loaded_on.params)


def test_an_optimizer_of_optax_is_lost_but_can_be_given_again():
    fit = shallow(4)
    again = loaded(fit)
    assert again.optimizer is None
    assert copy.copy(fit).optimizer is fit.optimizer is OPTIMIZER
    fresh = shallow(1, start=again, optimizer=None)  # the default, from its first step
    assert fresh.state.optim_state[0] == 1
    on = shallow(2, start=dataclasses.replace(again, optimizer=OPTIMIZER))
    np.testing.assert_array_equal(on.losses, shallow(2, start=fit).losses)


def test_chains_and_predictions():
    state = {"key": random.key(3), "u": jnp.ones(2)}
    chains = Chains({"w": np.ones((1, 3))}, {"lp": np.zeros((1, 3))}, state, 3, 0.5)
    again = loaded(MCEMResult({"noise": jnp.ones(())}, chains, np.ones(3), 1.0)).chains
    assert same(again.samples, chains.samples)
    assert again.state["key"] == state["key"]
    fit = shallow(4)
    p = dgp.predict(KEY, svgp, SHALLOW, fit, X, z=Z, num_samples=2)
    mean = p.mean
    np.testing.assert_array_equal(loaded(p).mean, mean)
