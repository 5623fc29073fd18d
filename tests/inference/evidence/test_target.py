"""The path from a guide to the posterior, and moves that keep its distributions."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from support.helpers import KEY
from support.tiny import TINY, X, Y, tiny

import dgp_ppl as dgp
from dgp_ppl._partition import Call, Partition
from dgp_ppl.inference.evidence._target import Arrays, Target

LATENTS = {"l1.v": jnp.zeros((1, 1)), "l2.v": jnp.zeros((1, 1)), "l1.eps": jnp.zeros((3, 1))}


@functools.cache
def path(target: Any = "model", leapfrogs=5):
    guide = dgp.MeanField(tiny)
    call = Call((jnp.asarray(X, float), jnp.asarray(Y, float)), {})
    guide.setup(*call.args)
    partition, data = Partition.split(tiny, call, guide)
    sites = LATENTS if target == "model" else {n: LATENTS[n] for n in ("l1.v", "l2.v")}
    return Target(guide, partition, target, leapfrogs, sites), Arrays(TINY, data)


def noise(num, draws=1):
    return jnp.broadcast_to(random.split(KEY, draws), (num, draws, *random.split(KEY).shape[1:]))


def test_moves_keep_a_tempered_distribution():
    """Weighted draws of N(0, I), resampled, keep their moments at beta = 0.3."""
    target, arrays = path()
    num, beta = 40_000, 0.3
    z = random.normal(KEY, (num, target.dim))
    log_ratio = target.log_ratio(z, noise(num), arrays)
    weights = jax.nn.softmax(beta * log_ratio)
    assert 1 / float(jnp.sum(weights**2)) > 2000
    moments = weights @ z, weights @ z**2
    chosen = random.choice(KEY, num, (2000,), p=weights)
    points = target.points(z[chosen], noise(2000), arrays)
    for k in range(5):
        key = random.fold_in(KEY, k)
        points, rates = target.move(
            key, points, noise(2000), beta, 0.4, jnp.ones(target.dim), arrays
        )
    assert 0.5 < float(jnp.mean(rates)) < 0.999
    # The weighted moments have an error too, of at least as many draws.
    for got, wanted in zip((points.z, points.z**2), moments, strict=True):
        error = np.std(got, axis=0) * np.sqrt(2 / 2000)
        assert (np.abs(np.mean(got, axis=0) - wanted) < 4 * error).all()


def test_noise_is_corrected_on_average():
    """The correction's target is the mean over noise, whatever noise a particle has."""
    target, arrays = path("bound")
    num = 64
    z = jnp.broadcast_to(random.normal(KEY, (target.dim,)), (num, target.dim))
    few = random.split(random.key(1), (num, 2))
    fresh = random.split(random.key(2), (num, 50, 2))
    corrected = target.log_ratio(z, few, arrays) + target.noise_correction(z, few, fresh, arrays)
    many = random.split(random.key(3), (400, 50))
    there = target.log_ratio(jnp.broadcast_to(z[0], (400, target.dim)), many, arrays)
    spread = np.hypot(np.std(corrected) / 8, np.std(there) / 20)
    bias = 0.5 * np.var(corrected)  # exp of the corrected value is right, not the value
    assert abs(np.mean(corrected) + bias - np.mean(there)) < 4 * spread
