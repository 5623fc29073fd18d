"""The path from a guide to the posterior, and moves that keep its distributions."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from scipy import stats
from support.helpers import KEY
from support.tiny import TINY, Z_ONE, Q, X, Y, given, tiny

import dgp_ppl as dgp
from dgp_ppl import kernels
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


def log_ratio(target, z, noise, arrays):
    """Return the log ratio of every particle, [C]."""
    return jax.jit(jax.vmap(lambda z, k: target._log_ratio_at(z, k, arrays)[0]))(z, noise)


@pytest.mark.parametrize("joint", [False, True])
def test_another_latent_site_counts_with_its_jacobian(joint):
    def noisy(x, y):
        noise = numpyro.sample("noise", dist.LogNormal(0, 0.5))
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), Z_ONE)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, noise)), obs=y)

    guide = dgp.MeanField(noisy, coupled=joint)
    call = Call((jnp.asarray(X, float), jnp.asarray(Y, float)), {})
    guide.setup(*call.args)
    params = {n: a for n, a in TINY.items() if n.startswith("l1.")}
    params |= {"noise_auto_loc": jnp.asarray(-0.3), "noise_auto_scale": jnp.asarray(0.4)}
    params |= {"auto_loc": jnp.asarray([-0.3]), "auto_scale_tril": jnp.asarray([[0.4]])}
    params["l1.v.slope"] = jnp.full((1, 1, 1), 0.7)
    partition, data = Partition.split(noisy, call, guide)
    other = {"_auto_latent": jnp.zeros(1)} if joint else {"noise": jnp.zeros(())}
    sites = {"l1.v": jnp.zeros((1, 1)), **other}
    target = Target(guide, partition, "model", 5, sites, tuple(other))
    z = np.random.default_rng(0).standard_normal((4, 2))
    found = log_ratio(target, jnp.asarray(z, float), noise(4), Arrays(params, data))
    e_v, e_noise = z.T[::-1] if joint else z.T
    log_noise = -0.3 + 0.4 * e_noise
    v = Q[1][0] + Q[1][1] * e_v + (0.7 * 0.4 * e_noise if joint else 0.0)
    mean, var = given(v[:, None], X[:, 0])
    sd = np.sqrt(var + np.exp(2 * log_noise)[:, None])
    log_joint = stats.norm(mean, sd).logpdf(Y).sum(axis=1) + stats.norm.logpdf(v)
    log_joint += stats.norm(0, 0.5).logpdf(log_noise)  # the Jacobian of exp cancels
    log_base = stats.norm.logpdf(z).sum(axis=1) - np.log(Q[1][1]) - np.log(0.4)
    np.testing.assert_allclose(found, log_joint - log_base, rtol=1e-4)


def test_moves_keep_a_tempered_distribution():
    """Weighted draws of N(0, I), resampled, keep their moments at beta = 0.3."""
    target, arrays = path()
    num, beta = 40_000, 0.3
    z = random.normal(KEY, (num, target.dim))
    ratio = log_ratio(target, z, noise(num), arrays)
    weights = jax.nn.softmax(beta * ratio)
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
    corrected = log_ratio(target, z, few, arrays) + target.noise_correction(z, few, fresh, arrays)
    many = random.split(random.key(3), (400, 50))
    there = log_ratio(target, jnp.broadcast_to(z[0], (400, target.dim)), many, arrays)
    spread = np.hypot(np.std(corrected) / 8, np.std(there) / 20)
    bias = 0.5 * np.var(corrected)  # exp of the corrected value is right, not the value
    assert abs(np.mean(corrected) + bias - np.mean(there)) < 4 * spread
