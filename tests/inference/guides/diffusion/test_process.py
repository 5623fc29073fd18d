"""The diffusion process, and its bounds on linear-Gaussian models, whose evidence is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial
from numpyro.infer import TraceMeanField_ELBO
from support.helpers import KEY, slow

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.guides.diffusion._guide import Diffusion
from dgp_ppl.inference.guides.diffusion._process import (
    Process,
    VariancePreserving,
    simulate_path,
    simulate_process,
)
from dgp_ppl.linalg import default_jitter

RISING = VariancePreserving()


def best_bound(process, model):
    """Return the best bound of affine controls and diagonal variances, and its policy."""
    X, y, noise = model[:3]
    H = X.shape[-1]
    design = np.swapaxes(X, -1, -2) / noise[..., None] ** 2
    # log p(y, x) - log N(x; 0, I) = value + b'x - x'Px / 2
    P, b = design @ X, (design @ y[..., None])[..., 0]
    value = (-0.5 * np.square(y / noise) - np.log(noise) - 0.5 * np.log(2 * np.pi)).sum(-1)
    policy = []
    for r, v in zip(process.carry, process.variance, strict=True):
        M = np.linalg.inv(P + np.eye(H) / v)
        offset = (M @ b[..., None])[..., 0]
        diagonal = np.diagonal(P, axis1=-2, axis2=-1)
        eta = 1 / (diagonal + 1 / v)
        spread = (diagonal * eta + eta / v - 1 - np.log(eta / v)).sum(-1)
        policy.append((offset, r / v * M, eta))
        value = value + 0.5 * (b * offset).sum(-1) - 0.5 * spread
        P, b = r**2 / v * np.eye(H) - (r / v) ** 2 * M, r / v * offset
    policy = [np.stack(a, axis=1) for a in zip(*policy, strict=True)]
    return value - 0.5 * np.trace(P, axis1=-2, axis2=-1), policy


def test_steps_of_the_reference():
    """They integrate dx = -b / 2 x dt + sqrt(b) dB, b linear in time, and keep N(0, I)."""
    process, fine = (Process.build(VariancePreserving(0.1, 20.0), steps) for steps in (7, 35))
    np.testing.assert_allclose(np.prod(process.carry), np.exp(-0.25 * 20.1), rtol=1e-12)
    np.testing.assert_allclose(process.carry**2 + process.variance, 1.0, rtol=1e-12)
    whole = np.prod(fine.carry.reshape(7, 5), axis=1)
    np.testing.assert_allclose(process.carry, whole, rtol=1e-12)


def test_derivatives_equal_the_derivatives_of_a_loop_in_python(x64):
    """In the control's params and in the variances; what is given counts as a constant."""
    process = Process.build(VariancePreserving(3.0, 3.0), 4)
    weights, given = 0.5 * random.normal(KEY, (3, 5)), jnp.sin

    def control(weights, k, x, value):
        return (weights @ jnp.tanh(weights.T @ x) + k) * (1 + value)

    def by_scan(weights, eta):
        process_control = Partial(control, weights)
        x, mean, cost = simulate_process(KEY, process, process_control, eta, given=given)
        return jnp.sum(jnp.sin(x) + jnp.square(mean)) + cost

    def by_hand(weights, eta):
        x = simulate_path(KEY, process, Partial(control, weights), eta, given=given)[0]
        x, cost, key = jax.lax.stop_gradient(x), 0.0, random.split(KEY)[0]
        for k in reversed(range(4)):
            u = process.gain[k] * control(weights, k, x, jax.lax.stop_gradient(given(x)))
            before, x = x, process.carry[k] * x + u
            if k > 0:
                ratio = eta[k] / process.variance[k]
                squares = jnp.square(u) / process.variance[k]
                cost += 0.5 * jnp.sum(ratio + squares - 1 - jnp.log(ratio))
                x += jnp.sqrt(eta[k]) * random.normal(random.fold_in(key, k), (3,))
        return jnp.sum(jnp.sin(before) + jnp.square(x)) + cost

    eta = jnp.asarray(np.random.default_rng(0).uniform(0.2, 1, (4, 3)))
    found, wanted = (jax.jit(jax.grad(f, (0, 1)))(weights, eta) for f in (by_scan, by_hand))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_rates_are_positive_and_leave_some_of_the_state():
    for low, high in ((-5.0, -5.0), (0.0, 1.0), (0.1, float("nan"))):
        with pytest.raises(ValueError, match=r"schedule is .*, wanted positive rates"):
            VariancePreserving(low, high)
    with pytest.raises(ValueError, match=r"schedule is .*, wanted lower rates"):
        Process.build(VariancePreserving(high=1e5), 4)


def test_memory_does_not_grow_with_the_steps():
    """The backward pass keeps the control's intermediates of one step only."""
    H, width = 4, 4096

    def memory(steps):
        process = Process.build(RISING, steps)
        eta = jnp.ones((steps, H))

        def cost(weights):
            control = Partial(lambda w, k, x: jnp.tanh(w @ x) @ w, weights)
            return simulate_process(KEY, process, control, eta)[2]

        compiled = jax.jit(jax.grad(cost)).lower(jnp.ones((width, H))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # Without the checkpoint 56 more steps would keep 2 x 56 x 4096 numbers.
    assert memory(64) - memory(8) < 56 * width


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
    """Write `gp` as a regression on the whitened inducing values.

    Returns design, targets, noise and log evidence; the first axis is the number of models.
    """
    x, y, variance, lengthscale, noise = data
    K = np.exp(-0.5 * np.square((x - np.swapaxes(x, -1, -2)) / lengthscale[:, None, None]))
    K = variance[:, None, None] * (K + default_jitter(np.dtype(float)) * np.eye(x.shape[1]))
    X, noise = np.linalg.cholesky(K), noise[:, None]
    gram = X @ np.swapaxes(X, -1, -2) + noise[..., None] ** 2 * np.eye(X.shape[-2])
    fit = (y[..., None, :] @ np.linalg.solve(gram, y[..., None]))[..., 0, 0]
    return X, y, noise, -0.5 * (fit + np.linalg.slogdet(2 * np.pi * gram)[1])


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


@pytest.mark.parametrize("steps", [slow(1), 4, slow(32)])
def test_the_guide_is_never_above_the_evidence(steps, x64):
    """On 200 models, with 400 paths of each with the best affine controls, whose bounds are known.

    Within 4.5 standard errors, which are at most 0.4 nats of a model, and 0.015 of all together.
    """
    rng = np.random.default_rng(5)
    numbers = np.exp(rng.uniform([0, -1, -1.6], [1, 0.5, 0.3], (200, 3))).T
    data = rng.uniform(-2, 2, (200, 6, 1)), 1.5 * rng.standard_normal((200, 6)), *numbers
    models, empty = whitened(data), Affine(jnp.zeros((steps, 6)), jnp.zeros((steps, 6, 6)))
    guide = Diffusion(gp, steps=steps, base="prior", score=empty)
    best, policy = best_bound(guide.process, models)
    found = bounds(guide, data, policy, 400)
    mean, error = found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(400)
    together = np.sqrt(np.square(error).sum()) / 200
    assert error.max() < 0.4
    assert together < 0.015
    assert (best < models[-1]).all()
    assert (mean < models[-1] + 4.5 * error).all()
    np.testing.assert_array_less(np.abs(mean - best), 4.5 * error)
    assert abs(mean.mean() - best.mean()) < 4.5 * together
