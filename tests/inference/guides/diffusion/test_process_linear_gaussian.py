"""Processes on linear-Gaussian models: the objective is a bound."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro.infer import TraceMeanField_ELBO
from support.helpers import KEY, assert_mean, slow
from support.linear_gaussian import (
    CONSTANT,
    RISING,
    best_bound,
    closed_form_gap,
    linear_gaussian,
    log_weights,
    regression_posterior,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.guides.diffusion._guide import Diffusion
from dgp_ppl.inference.guides.diffusion._process import Process
from dgp_ppl.linalg import default_jitter


@pytest.mark.parametrize("schedule", [CONSTANT, RISING])
def test_never_above_the_evidence(schedule):
    """The best bound of all affine controls, on 200 models; exact for fixed variances."""
    models = linear_gaussian(0, models=200)
    for steps in (1, 4, 8, 32):
        process = Process.build(schedule, steps)
        fixed = models[-1] - best_bound(process, models, "fixed")[0]
        free = models[-1] - best_bound(process, models, "free")[0]
        assert (free > -1e-9).all()
        assert (fixed >= free - 1e-9).all()
        np.testing.assert_allclose(fixed, closed_form_gap(process, models), rtol=1e-7, atol=1e-7)


def known():
    """Return the model of the numbers below: five unknowns and eight observations."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((8, 5)), rng.standard_normal(5)
    y = X @ w + 0.5 * rng.standard_normal(8)
    return regression_posterior(X[None], y[None], np.array([[0.5]]))


@pytest.mark.parametrize(
    ("schedule", "fixed", "free"),
    [
        (
            CONSTANT,
            (36.8950, 26.0559, 7.8714, 1.7197, 0.3692),
            (0.6689, 0.6155, 0.4036, 0.1679, None),
        ),
        (
            RISING,
            (19.2381, 6.2164, 1.0333, 0.2365, 0.0578),
            (0.5650, 0.3542, 0.0911, 0.0232, None),
        ),
    ],
)
def test_gaps_of_the_best_affine_controls(schedule, fixed, free):
    """With the reference's step variances and with learned ones, for K steps."""
    model = known()
    np.testing.assert_allclose(model[-1], -14.5837, atol=5e-5)
    for steps, *wanted in zip((4, 8, 32, 128, 512), fixed, free, strict=True):
        process = Process.build(schedule, steps)
        for variances, gap in zip(("fixed", "free"), wanted, strict=True):
            if gap is not None:
                found = model[-1] - best_bound(process, model, variances)[0]
                np.testing.assert_allclose(found, [gap], atol=5.1e-5)


@pytest.mark.parametrize("drawn", [False, True])
def test_drawn_paths_agree_with_the_closed_form(drawn, x64):
    model = linear_gaussian(3)
    process = Process.build(RISING, 8)
    value, policy = best_bound(process, model, "free")
    w = log_weights(process, model, policy, random.split(KEY, 20_000), drawn)
    assert_mean(w, value[0])
    if drawn:
        assert_mean(np.exp(w - model[-1][0]), 1.0)  # importance weights: unbiased for the evidence


class Affine(eqx.Module):
    """u = offset + slope z, with other numbers for each step."""

    offset: jax.Array
    slope: jax.Array

    def __call__(self, t, z):
        k = jnp.round(t * len(self.offset)).astype(int) - 1
        flat, unravel = ravel_pytree(z)
        return unravel(self.offset[k] + self.slope[k] @ flat)


def gp(x, y, *, variance, lengthscale, noise):
    """One inducing point per datum: linear-Gaussian, and bounds are bounds on log p(y)."""
    f = dgp.gp("l1", kernels.SquaredExponential(variance, lengthscale), x)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, noise)), obs=y)


def whitened(data):
    """Write `gp` as a regression on the whitened inducing values."""
    x, y, variance, lengthscale, noise = data
    K = np.exp(-0.5 * np.square((x - np.swapaxes(x, -1, -2)) / lengthscale[:, None, None]))
    K = variance[:, None, None] * (K + default_jitter(np.dtype(float)) * np.eye(x.shape[1]))
    return regression_posterior(np.linalg.cholesky(K), y, noise[:, None])


def bounds(guide, data, policy, num):
    """Return the guide's bounds with an affine control for each model, [models, num]."""
    offset, slope, eta = policy
    r, c = guide.process.carry, guide.process.gain
    score = (slope - r[:, None, None] * np.eye(eta.shape[-1])) / c[:, None, None]
    params = {
        "diffusion.score.offset": jnp.asarray(offset / c[:, None]),
        "diffusion.score.slope": jnp.asarray(score),
        "diffusion.variance": jnp.asarray(eta),
    }
    data = [jnp.asarray(a) for a in data]

    def one(key, params, x, y, *numbers):
        options = dict(zip(("variance", "lengthscale", "noise"), numbers, strict=True))
        return -TraceMeanField_ELBO().loss(key, params, gp, guide, x, y, **options)

    paths = jax.vmap(one, (0, *[None] * (1 + len(data))))
    keys = random.split(KEY, (len(eta), num))
    return np.asarray(jax.jit(jax.vmap(paths))(keys, params, *data))


def random_data(models, N=6):
    rng = np.random.default_rng(5)
    variance, lengthscale, noise = np.exp(rng.uniform([0, -1, -1.6], [1, 0.5, 0.3], (models, 3))).T
    x = rng.uniform(-2, 2, (models, N, 1))
    y = 1.5 * rng.standard_normal((models, N))
    return x, y, variance, lengthscale, noise


@pytest.mark.parametrize("steps", [1, 4, slow(8), slow(32)])
def test_the_guide_is_never_above_the_evidence(steps, x64):
    """On 200 models, with 400 paths of each with the best affine controls, whose bounds are known.

    Within 4.5 standard errors, which are at most 0.4 nats of a model, and 0.015 of all together.
    """
    data = random_data(200)
    models = whitened(data)
    guide = Diffusion(gp, steps=steps, base="prior", score=Affine(*empty(steps, 6)))
    best, policy = best_bound(guide.process, models, "free")
    found = bounds(guide, data, policy, 400)
    mean, error = found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(400)
    together = np.sqrt(np.square(error).sum()) / 200
    assert error.max() < 0.4
    assert together < 0.015
    assert (best < models[-1]).all()
    assert (mean < models[-1] + 4.5 * error).all()
    np.testing.assert_array_less(np.abs(mean - best), 4.5 * error)
    assert abs(mean.mean() - best.mean()) < 4.5 * together


def empty(steps, H):
    return jnp.zeros((steps, H)), jnp.zeros((steps, H, H))
