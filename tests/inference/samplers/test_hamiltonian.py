"""One Hamiltonian transition: its stationary distribution and its rejections."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from support.helpers import KEY, assert_mean

from dgp_ppl.inference.samplers._hamiltonian import Evaluated, hamiltonian_move

SDS = jnp.array([1.0, 0.5])


def evaluate(x):
    return Evaluated(x, -0.5 * jnp.sum((x / SDS) ** 2), -x / SDS**2, jnp.sum(x))


def moved(x, size, num=3):
    move = lambda k, x: hamiltonian_move(k, evaluate(x), evaluate, size * SDS, num)  # noqa: E731
    return jax.vmap(move)(random.split(random.key(1), len(x)), x)


def test_a_gaussian_stays_as_it_is_though_many_ends_are_rejected():
    x = random.normal(KEY, (20_000, 2)) * SDS
    new, rates = moved(x, 1.5)
    assert 0.3 < float(rates.mean()) < 0.95
    assert (np.asarray(new.position) != np.asarray(x)).mean() > 0.3
    assert_mean((new.position / SDS) ** 2, 1.0)
    np.testing.assert_allclose(new.aux, new.position.sum(axis=1), rtol=1e-5, atol=1e-6)


def test_an_end_without_a_density_is_rejected():
    def cliff(x):
        at = evaluate(x)
        return at._replace(value=jnp.where(x[0] < 0.5, at.value, jnp.nan))

    def move(k):
        return hamiltonian_move(k, cliff(jnp.zeros(2)), cliff, SDS, 1)

    new, rates = jax.vmap(move)(random.split(KEY, 200))
    assert (new.position[:, 0] < 0.5).all()
    assert (rates == 0).sum() > 10
