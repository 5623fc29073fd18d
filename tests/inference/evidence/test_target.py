"""The path from a guide to the posterior, and moves that keep its distributions."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from support.helpers import KEY, assert_mean
from support.tiny import TINY, X, Y, tiny

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


def test_latents_and_reference_values_are_inverse():
    target, arrays = path()
    z = random.normal(KEY, (70, target.dim))  # more than one batch
    latents = target.latents(z, noise(70), arrays)
    assert {n: a.shape[1:] for n, a in latents.items()} == {n: a.shape for n, a in LATENTS.items()}
    np.testing.assert_allclose(target.to_reference(latents, arrays), z, rtol=1e-4, atol=1e-5)


def with_lengthscale(x, y=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0, 0.5))
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, lengthscale), X[:2])
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), X[:2])
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)


def test_latents_and_reference_values_are_inverse_where_q_depends_on_other_sites():
    """The second layer of `GlobalInducing` follows the lengthscale of the first, a latent site."""
    guide = dgp.GlobalInducing(with_lengthscale, X)
    call = Call((jnp.asarray(X, float), jnp.asarray(Y, float)), {})
    params = dgp.fit(KEY, with_lengthscale, guide, *call.args, steps=20, progress=False).params
    params["l1.v.scale_tril"] = 0.5 * jnp.eye(2)[None]  # a fit starts at a nearly singular one
    partition, data = Partition.split(with_lengthscale, call, guide)
    sites = {f"l{i}.v": jnp.zeros((2, 1)) for i in (1, 2)} | {"lengthscale": jnp.zeros(())}
    target = Target(guide, partition, "bound", 5, sites, ["lengthscale"])
    z = random.normal(KEY, (20, target.dim))
    latents = target.latents(z, noise(20), Arrays(params, data))
    assert (latents["lengthscale"] > 0).all()
    back = target.to_reference(latents, Arrays(params, data))
    np.testing.assert_allclose(back, z, rtol=1e-3, atol=1e-3)


def test_slopes_are_gradients_and_batches_agree():
    target, arrays = path()
    z = random.normal(KEY, (70, target.dim))
    points = target.points(z, noise(70), arrays)
    np.testing.assert_allclose(points.ratio, target.log_ratio(z, noise(70), arrays), rtol=1e-5)
    few = target.points(z[66:], noise(4), arrays)
    np.testing.assert_allclose(few.ratio, points.ratio[66:], rtol=1e-5)
    step = 1e-2 * jnp.eye(target.dim)[0]
    ends = [target.log_ratio(z + s * step, noise(70), arrays) for s in (1, -1)]
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-2, points.slope[:, 0], rtol=0.02, atol=0.02)


def test_moves_keep_the_first_distribution():
    """At beta = 0 draws of N(0, I) stay such, whatever the scales, and long steps are refused."""
    target, arrays = path()
    num, scale = 4000, jnp.linspace(0.5, 1.5, target.dim)
    points = target.points(random.normal(KEY, (num, target.dim)), noise(num), arrays)
    rejected = 0.0
    for k in range(3):
        points, rates = target.move(
            random.fold_in(KEY, k), points, noise(num), 0.0, 1.2, scale, arrays
        )
        rejected += float(jnp.mean(1 - rates))
    assert rejected > 0.05
    assert_mean(points.z, 0.0)
    assert_mean(points.z**2, 1.0)


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
    # The weighted moments have an error too: that of at least as many draws.
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
