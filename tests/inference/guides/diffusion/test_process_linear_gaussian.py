"""Processes on linear-Gaussian models: the exact form is a bound, the printed algorithm is not."""

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
    FALLING,
    NARROW,
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


@pytest.mark.parametrize("steps", [1, 4, 8, 32])
@pytest.mark.parametrize("schedule", [CONSTANT, RISING, FALLING, NARROW])
def test_never_above_the_evidence(schedule, steps):
    """The best bound of all affine controls, on 200 models; exact for fixed variances."""
    process, models = Process.exact(schedule, steps), linear_gaussian(0, models=200)
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


def variants(schedule, steps):
    """Build four processes that start from N(0, s² I).

    They are exact steps; Euler steps whose control is charged where they start; the printed
    algorithm with the correct kappa; the printed algorithm.
    """
    exact, printed = Process.exact(schedule, steps), Process.euler(schedule, steps)
    carry = printed.carry + printed.gain * (1 / printed.kappa[1:] - 1 / exact.kappa[1:])
    right = printed._replace(kappa=exact.kappa, carry=carry)
    exact = exact._replace(initial_variance=schedule.variance)
    return exact, right._replace(first_control_free=False), right, printed


INF = np.inf


@pytest.mark.parametrize(
    ("schedule", "steps", "gaps"),
    [
        (CONSTANT, 4, (-36.8950, -91.7036, INF, -93.2707)),
        (CONSTANT, 8, (-26.0559, -43.2891, -40.9208, -44.3652)),
        (CONSTANT, 32, (-7.8714, -9.0589, -6.1508, -9.2300)),
        (CONSTANT, 128, (-1.7197, -1.7759, 1.2646, -1.6482)),
        (CONSTANT, 512, (-0.3692, -0.3700, 2.7035, -0.1665)),
        (RISING, 4, (-19.2381, -56.2516, -54.3126, -57.7488)),
        (RISING, 8, (-6.2164, -12.7576, -10.1757, -13.7743)),
        (RISING, 32, (-1.0333, -1.1418, 1.8189, -1.5426)),
        (RISING, 128, (-0.2365, -0.2344, 2.8181, -0.4687)),
        (RISING, 512, (-0.0578, -0.0564, 3.0190, -0.2486)),
        (FALLING, 128, (-2.6981, -2.6986, 0.4819, -0.4147)),
        (NARROW, 4, (-6.2707, -10.9020, INF, INF)),
        (NARROW, 32, (-1.1605, -0.7230, INF, INF)),
        (NARROW, 128, (-0.2591, -0.1124, INF, INF)),
    ],
)
def test_best_objective_less_the_evidence(schedule, steps, gaps):
    """Over affine scores: below the evidence with exact steps; above or infinite as printed."""
    model = known()
    np.testing.assert_allclose(model[-1], -14.5837, atol=5e-5)
    found = [best_bound(c, model, "fixed")[0] - model[-1] for c in variants(schedule, steps)]
    np.testing.assert_allclose(np.ravel(found), gaps, atol=5.1e-5)


@pytest.mark.parametrize(
    ("schedule", "gaps"),
    [
        (CONSTANT, (0.6915, 0.6689, 0.6155, 0.4036, 0.1679)),
        (RISING, (0.6907, 0.5650, 0.3542, 0.0911, 0.0232)),
    ],
)
def test_gap_with_learned_step_variances(schedule, gaps):
    model = known()
    processes = [Process.exact(schedule, steps) for steps in (1, 4, 8, 32, 128)]
    found = [model[-1] - best_bound(process, model, "free")[0] for process in processes]
    np.testing.assert_allclose(np.ravel(found), gaps, atol=5.1e-5)


@pytest.mark.parametrize(
    ("steps", "variant", "gap"), [(8, 0, -26.0559), (8, 3, -44.3652), (128, 2, 1.2646)]
)
def test_drawn_paths_have_these_gaps(steps, variant, gap, x64):
    """Exact; as printed; and as printed with the right kappa, which exceeds the evidence."""
    model, process = known(), variants(CONSTANT, steps)[variant]
    policy = best_bound(process, model, "fixed")[1]
    w = log_weights(process, model, policy, random.split(KEY, 20_000), "expected")
    assert_mean(w - model[-1][0], gap)
    assert (w.mean() - 4.5 * w.std() / np.sqrt(len(w)) > model[-1][0]) == (gap > 0)


@pytest.mark.parametrize("estimator", ["expected", "drawn", "landing"])
@pytest.mark.parametrize("build", [Process.exact, Process.euler])
def test_drawn_paths_agree_with_the_closed_form(build, estimator, x64):
    model = linear_gaussian(3)
    process = build(RISING, 8)
    value, policy = best_bound(process, model, "free")
    w = log_weights(process, model, policy, random.split(KEY, 20_000), estimator)
    assert_mean(w, value[0])
    if build is Process.exact and estimator == "drawn":
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


@pytest.mark.parametrize("steps", [4, 32])
def test_the_printed_form_exceeds_the_evidence(steps, x64):
    """By over ten nats where the posterior is in the prior's tail; the exact form does not."""
    one = np.ones(1)
    data = np.zeros((1, 1, 1)), np.array([[6.0]]), one, one, 0.5 * one
    model = whitened(data)
    excess = {}
    for form in ("exact", "euler"):
        guide = Diffusion(
            gp, steps=steps, base="prior", score=Affine(*empty(steps, 1)), discretization=form,
            schedule=CONSTANT,
        )  # fmt: skip
        best, policy = best_bound(guide.process, model, "fixed")
        found = bounds(guide, data, policy, 4000)[0] - model[-1]
        assert_mean(found, best - model[-1])
        excess[form] = found.mean()
    assert excess["euler"] > 10
    assert excess["exact"] < 0
