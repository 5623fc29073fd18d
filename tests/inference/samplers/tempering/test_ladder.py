"""Swaps, round trips and the spacing of temperatures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from support.helpers import KEY, assert_mean

from dgp_ppl.inference.samplers.tempering._ladder import first_ladder, respaced, swapped

FLOAT = jnp.zeros(()).dtype


def test_a_swap_exchanges_values_and_replicas():
    """Values that are likelier always go to the colder temperature."""
    ladder = first_ladder(4, FLOAT)
    new, source = swapped(KEY, ladder, jnp.array([0.0, 1e3, 0.0, 1e6]), 0)
    np.testing.assert_array_equal(source, [1, 0, 3, 2])
    np.testing.assert_array_equal(new.replica, [1, 0, 3, 2])
    np.testing.assert_array_equal(new.attempts, [1, 0, 1])
    np.testing.assert_allclose(new.rejection, 0.0)
    odd, source = swapped(KEY, new, jnp.array([0.0, 0.0, 1e3, 0.0]), 1)
    np.testing.assert_array_equal(source, [0, 2, 1, 3])
    np.testing.assert_array_equal(odd.replica, [1, 3, 0, 2])


def test_values_without_a_density_stay_where_they_are():
    new, source = swapped(KEY, first_ladder(3, FLOAT), jnp.array([0.0, jnp.nan, -jnp.inf]), 0)
    np.testing.assert_array_equal(source, [0, 1, 2])
    assert float(new.rejection[0]) == 1


def test_without_swaps_there_are_no_round_trips():
    ladder = first_ladder(3, FLOAT)
    for k in range(6):
        ladder, _ = swapped(KEY, ladder, jnp.full(3, jnp.nan), k % 2)
    assert not ladder.round_trips.any()


def test_swaps_keep_the_joint_distribution():
    """Of two Gaussians at temperatures 1 and 0.25, after many swaps and nothing else."""
    betas = jnp.array([1.0, 0.25])
    ladder = first_ladder(2, FLOAT)._replace(betas=betas)
    x = random.normal(KEY, (20_000, 2)) / jnp.sqrt(betas)

    def swap(key, x):
        _, source = swapped(key, ladder, -0.5 * x**2, 0)
        return x[source]

    for k in range(3):
        x = jax.vmap(swap)(random.split(random.key(k), len(x)), x)
    assert_mean(x**2, 1 / betas)


def test_round_trips_are_counted_from_the_prior_to_the_posterior():
    """If every swap is accepted, a replica needs 2 R steps for one."""
    R, steps = 5, 200
    ladder = first_ladder(R, FLOAT)
    step = jax.jit(swapped)
    for k in range(steps):
        ladder, _ = step(random.fold_in(KEY, k), ladder, jnp.zeros(R), k % 2)
    assert int(ladder.round_trips.sum()) == pytest.approx(R * steps / (2 * R), abs=R)
    assert sorted(np.asarray(ladder.replica)) == list(range(R))


def test_spacing_makes_rejections_even():
    """The rejection between two temperatures of a Gaussian target is a function of their ratio."""
    ladder = first_ladder(6, FLOAT)

    def measured(ladder):
        draws = random.normal(KEY, (4000, 6)) / jnp.sqrt(1 + 50 * ladder.betas)
        likelihood = -25 * draws**2
        gain = (ladder.betas[:-1] - ladder.betas[1:]) * (likelihood[:, 1:] - likelihood[:, :-1])
        return jnp.mean(1 - jnp.exp(jnp.minimum(0.0, gain)), axis=0)

    before = measured(ladder)
    for _ in range(4):
        ladder = respaced(ladder._replace(rejection=measured(ladder)))
    after = measured(ladder)
    assert float(jnp.std(after)) < 0.25 * float(jnp.std(before))
    assert float(after.sum()) == pytest.approx(float(before.sum()), rel=0.25)
    assert ladder.betas[0] == 1
    assert ladder.betas[-1] == 0
    assert not ladder.rejection.any()


def test_pairs_that_never_reject_can_be_spaced():
    ladder = respaced(first_ladder(5, FLOAT))
    assert (np.diff(ladder.betas) < 0).all()
    np.testing.assert_allclose(ladder.barrier, 0.0)
