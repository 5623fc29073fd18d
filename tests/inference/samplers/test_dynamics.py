"""Langevin steps and Hamiltonian transitions on targets whose stationary law is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from scipy.linalg import solve_discrete_lyapunov
from support.helpers import KEY, assert_mean

from dgp_ppl.inference.samplers._dynamics import Evaluated, hamiltonian_move, langevin_step
from dgp_ppl.inference.samplers._warmup import Warmup

pytestmark = pytest.mark.usefixtures("x64")

CORRELATED = np.array([[1.0, 0.95], [0.95, 1.0]])


def stationary(hessian, noise, step_size=0.2, friction=0.2):
    """Covariance of the position for the energy x'Hx / 2, whose gradients have covariance `noise`.

    The scales come from a warm-up that knows the variance of every coordinate's gradient.
    """
    d, zero = len(hessian), jnp.zeros(len(hessian))
    warmup = Warmup(friction, "variance", "baoab", correct_noise=True)
    known = warmup.init(zero)._replace(
        mean_square=jnp.diag(hessian + noise), noise_variance=jnp.diag(noise)
    )
    phase = warmup.phase(jnp.array(3 * 10**8), jnp.array(4 * 10**8))
    scale, removed = warmup.scales(known, phase, jnp.array(step_size))

    def step(x, r, e, g):
        gradient = lambda q: (jnp.asarray(hessian) @ q + g, None)  # noqa: E731
        new = langevin_step("baoab", friction, x, r, e, scale, removed, gradient)
        return jnp.concatenate([new.position, new.momentum])

    blocks = jax.jacobian(step, argnums=(0, 1, 2, 3))(zero, zero, zero, zero)
    x, r, e, g = (np.asarray(a, np.float64) for a in blocks)
    return solve_discrete_lyapunov(np.hstack([x, r]), e @ e.T + g @ noise @ g.T)[:d, :d]


def sds(covariance, truth):
    """Standard deviations along the eigenvectors of the true covariance, relative to the truth."""
    values, vectors = np.linalg.eigh(truth)
    return np.sqrt(np.diag(vectors.T @ covariance @ vectors) / values)


def test_exact_gradients_are_exact_at_any_stable_step():
    wide = np.diag([1.0, 1e-4])
    for step_size, friction in ((0.2, 0.2), (0.4, 0.3), (1.2, 0.5)):
        found = stationary(np.linalg.inv(CORRELATED), np.zeros((2, 2)), step_size / 4, friction)
        np.testing.assert_allclose(found, CORRELATED, atol=1e-6)
        found = stationary(np.linalg.inv(wide), np.zeros((2, 2)), step_size, friction)
        np.testing.assert_allclose(found, wide, rtol=1e-6, atol=1e-9)


def test_an_euler_step_is_chen_et_als():
    """Their equation 15, for the energy x² / 2; the temperature is of half a kick."""
    h, friction = 0.3, 0.2

    def step(x, r, e):
        new = langevin_step("euler", friction, x, r, e, h, 0.0, lambda q: (q, None))
        return jnp.stack([new.position, new.momentum])

    found = jnp.stack(jax.jacobian(step, argnums=(0, 1, 2))(0.0, 0.0, 0.0), axis=1)
    noise = np.sqrt(2 * friction)
    np.testing.assert_allclose(found, [[1, h, 0], [-h, 1 - friction - h**2, noise]], rtol=1e-12)
    new = langevin_step("euler", friction, 1.0, 0.0, 0.0, h, 0.0, lambda q: (q, None))
    np.testing.assert_allclose(new.temperature, (h / 2) ** 2, rtol=1e-12)


def test_noise_of_separate_coordinates_is_corrected():
    """Whether or not the coordinates of the target are correlated."""
    for noise in (0.1, 1.0, 3.0):
        for covariance in (CORRELATED, np.diag([1.0, 1e-4])):
            hessian = np.linalg.inv(covariance)
            found = stationary(hessian, noise * np.diag(np.diag(hessian)))
            np.testing.assert_allclose(sds(found, covariance), 1.0, atol=1e-3)


def test_correlated_noise_leaves_a_bias_of_a_few_percent():
    """Gradients of minibatches of a regression, whose noise has the Hessian's correlation."""
    truth = np.linalg.inv(CORRELATED)
    found = sds(stationary(CORRELATED, 3 * CORRELATED), truth)
    assert 0.01 < np.abs(found - 1).max() < 0.05


SDS = jnp.array([1.0, 0.5])


def evaluate(x):
    return Evaluated(x, -0.5 * jnp.sum((x / SDS) ** 2), -x / SDS**2, jnp.sum(x))


def moved(x, size, num=3):
    move = lambda k, x: hamiltonian_move(k, evaluate(x), evaluate, size * SDS, num)  # noqa: E731
    return jax.jit(jax.vmap(move))(random.split(random.key(1), len(x)), x)


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

    new, rates = jax.jit(jax.vmap(move))(random.split(KEY, 200))
    assert (new.position[:, 0] < 0.5).all()
    assert (rates == 0).sum() > 10
