import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_mean
from jax import random
from jax.scipy.special import logsumexp
from scipy.integrate import solve_ivp

from dgp_ppl.inference.chain import (
    Chain,
    OrnsteinUhlenbeck,
    VariancePreserving,
    last_step_cost,
    run_chain,
)

CONSTANT = VariancePreserving(low=8.0, high=8.0)
RISING = VariancePreserving()
FALLING = OrnsteinUhlenbeck(lambda t: 3.0, lambda t: 2.0)
NARROW = VariancePreserving(low=8.0, high=8.0, variance=0.25)


@pytest.mark.parametrize(
    ("schedule", "kappa"),
    [
        (OrnsteinUhlenbeck(lambda t: 1.0, lambda t: 1.0), 0.567668),
        (VariancePreserving(2.0, 2.0), 1.0),
        (VariancePreserving(0.1, 20.0), 1.0),
        (VariancePreserving(2.0, 2.0, variance=0.25), 0.25),
        (OrnsteinUhlenbeck(lambda t: 1 + t, lambda t: (0.5 + t**2) ** 2, variance=2.0), 0.449852),
        (OrnsteinUhlenbeck(lambda t: 0.0, lambda t: 1.0), 2.0),
    ],
)
def test_variance_of_the_reference_is_that_of_its_differential_equation(schedule, kappa):
    def slope(t, variance):
        return -2 * schedule.rate(t) * variance + schedule.diffusion(t)

    for steps in (1, 7):
        chain = Chain.exact(schedule, steps)
        truth = solve_ivp(
            slope, (0, 1), [schedule.variance], t_eval=chain.times, rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(chain.kappa, truth.y[0], rtol=1e-9)
        np.testing.assert_allclose(chain.kappa[-1], kappa, atol=5e-7)


def linear_gaussian(seed, models=1, H=5, N=8):
    """Random regressions, w ~ N(0, I): design, targets, noise; posterior; log evidence.

    Everything leads with the number of models.
    """
    rng = np.random.default_rng(seed)
    noise = np.exp(rng.uniform(np.log(0.2), np.log(2.0), (models, 1)))
    X = rng.standard_normal((models, N, H)) * np.exp(rng.standard_normal((models, 1, H)))
    w = 2 * rng.standard_normal((models, H, 1))
    return regression_posterior(
        X, (X @ w)[..., 0] + noise * rng.standard_normal((models, N)), noise
    )


def regression_posterior(X, y, noise):
    N, H = X.shape[-2:]
    design = np.swapaxes(X, -1, -2) / noise[..., None] ** 2
    cov = np.linalg.inv(np.eye(H) + design @ X)
    mean = (cov @ design @ y[..., None])[..., 0]
    gram = X @ np.swapaxes(X, -1, -2) + noise[..., None] ** 2 * np.eye(N)
    fit = (y[..., None, :] @ np.linalg.solve(gram, y[..., None]))[..., 0, 0]
    log_evidence = -0.5 * (fit + np.linalg.slogdet(gram)[1] + N * np.log(2 * np.pi))
    return X, y, noise, mean, cov, log_evidence


def best_bound(chain, model, variances):
    """The best bound of all affine controls, by dynamic programming; and the steps that have it.

    `variances` of the steps: those of the reference ("fixed"), or the best diagonal ones ("free").
    """
    X, y, noise = model[:3]
    H, s2 = X.shape[-1], chain.kappa[0]
    design = np.swapaxes(X, -1, -2) / noise[..., None] ** 2
    # log p(y, x) - log N(x; 0, s²) = value + b'x - x'Px / 2
    P = design @ X + (1 - 1 / s2) * np.eye(H)
    b = (design @ y[..., None])[..., 0]
    data = -0.5 * np.square(y / noise) - np.log(noise) - 0.5 * np.log(2 * np.pi)
    value = data.sum(-1) + 0.5 * H * np.log(s2)
    policy = []
    for r, v in zip(chain.carry, chain.variance, strict=True):
        M = np.linalg.inv(P + np.eye(H) / v)
        offset = (M @ b[..., None])[..., 0]
        diagonal = np.diagonal(P, axis1=-2, axis2=-1)
        eta = 1 / (diagonal + 1 / v) if variances == "free" else np.full(diagonal.shape, v)
        spread = (diagonal * eta + eta / v - 1 - np.log(eta / v)).sum(-1)
        policy.append((offset, r / v * M, eta))
        value = value + 0.5 * (b * offset).sum(-1) - 0.5 * spread
        P, b = r**2 / v * np.eye(H) - (r / v) ** 2 * M, r / v * offset
    policy = [np.stack(a, axis=-3 if a[0].ndim > 2 else -2) for a in zip(*policy, strict=True)]
    return value - 0.5 * chain.kappa[-1] * np.trace(P, axis1=-2, axis2=-1), policy


def gaussian_kl(cov_p, mean_q, cov_q):
    """KL[N(0, P) || N(mean, Q)]."""
    inverse = np.linalg.inv(cov_q)
    logs = np.linalg.slogdet(cov_q)[1] - np.linalg.slogdet(cov_p)[1]
    fit = (mean_q[..., None, :] @ inverse @ mean_q[..., None])[..., 0, 0]
    trace = np.trace(inverse @ cov_p, axis1=-2, axis2=-1)
    return 0.5 * (trace + fit - mean_q.shape[-1] + logs)


def closed_form_gap(chain, model):
    """What the reference's step variances cost, and what a start from its own law does."""
    mean, C = model[3:5]
    eye, gap = np.eye(mean.shape[-1]), 0.0
    a = chain.carry * chain.kappa[1:] / chain.kappa[:-1]
    for k, v in enumerate(chain.variance):
        after = a[k] ** 2 * C + chain.gain[k] * a[k] * eye
        back = C - a[k] ** 2 * C @ np.linalg.solve(after, C)
        gap = gap + gaussian_kl(v * eye, np.zeros_like(mean), back)
        mean, C = a[k] * mean, after
    return gap + gaussian_kl(chain.kappa[-1] * eye, mean, C)


@pytest.mark.parametrize("steps", [1, 4, 8, 32])
@pytest.mark.parametrize("schedule", [CONSTANT, RISING, FALLING, NARROW])
def test_never_above_the_evidence(schedule, steps):
    """The best of all affine controls on 200 models; with fixed variances to the last digit."""
    chain, models = Chain.exact(schedule, steps), linear_gaussian(0, models=200)
    fixed = models[-1] - best_bound(chain, models, "fixed")[0]
    free = models[-1] - best_bound(chain, models, "free")[0]
    assert (free > -1e-9).all()
    assert (fixed >= free - 1e-9).all()
    np.testing.assert_allclose(fixed, closed_form_gap(chain, models), rtol=1e-7, atol=1e-7)


def log_weights(chain, model, policy, keys, estimator):
    """log p(y, x_0) - log q(x_0 | x_1) - cost of drawn chains with an affine policy."""
    X, y, noise = (jnp.asarray(a[0]) for a in model[:3])
    offset, slope, eta = (jnp.asarray(a[0]) for a in policy)
    normal = jax.scipy.stats.norm.logpdf
    r, c = jnp.asarray(chain.carry), jnp.asarray(chain.gain)

    def control(k, x):
        return (offset[k] + slope[k] @ x - r[k] * x) / c[k]

    def one(key):
        key, last = random.split(key)
        x, mean, cost = run_chain(key, chain, control, eta, held=control, estimator=estimator)
        end = mean + jnp.sqrt(eta[0]) * random.normal(last, mean.shape)
        cost = cost + last_step_cost(chain, x, end, 0.0)
        joint = jnp.sum(normal(y, X @ end, noise)) + jnp.sum(normal(end))
        return joint - jnp.sum(normal(end, mean, jnp.sqrt(eta[0]))) - cost

    return jax.jit(jax.vmap(one))(keys)


@pytest.mark.parametrize("estimator", ["expected", "drawn", "landing", "detached"])
@pytest.mark.parametrize("build", [Chain.exact, Chain.euler])
def test_chains_drawn_agree_with_the_closed_form(build, estimator, x64):
    model = linear_gaussian(3)
    chain = build(RISING, 8)
    value, policy = best_bound(chain, model, "free")
    w = log_weights(chain, model, policy, random.split(KEY, 20_000), estimator)
    assert_mean(w, value[0])
    if build is Chain.exact and estimator == "drawn":
        assert_mean(np.exp(w - model[-1][0]), 1.0)  # importance weights: unbiased for the evidence


def test_expected_cost_of_the_last_step(x64):
    chain = Chain.exact(FALLING, 3)
    x, mean, eta = random.normal(KEY, (3, 4)) ** 2 + 0.1
    ends = mean + jnp.sqrt(eta) * random.normal(random.key(1), (20_000, 4))
    draws = jax.vmap(lambda end: last_step_cost(chain, x, end, 0.0))(ends)
    assert_mean(draws, last_step_cost(chain, x, mean, eta))


def test_no_control_costs_nothing(x64):
    """Chain and reference are then one: log q(x_0 | x_1) + cost is log N(x_0; 0, s²)."""
    chain = Chain.exact(NARROW, 5)
    eta = jnp.tile(jnp.asarray(chain.variance)[:, None], 3)
    for estimator in ("expected", "drawn"):
        x, mean, cost = run_chain(KEY, chain, lambda k, x: jnp.zeros(3), eta, estimator=estimator)
        assert abs(cost) < 1e-12
        np.testing.assert_allclose(mean, chain.carry[0] * x)
        end = mean + 0.3
        own = jax.scipy.stats.norm.logpdf(end, mean, jnp.sqrt(eta[0]))
        prior = jax.scipy.stats.norm.logpdf(end, 0, np.sqrt(0.25))
        total = jnp.sum(own) + last_step_cost(chain, x, end, 0.0)
        np.testing.assert_allclose(total, jnp.sum(prior), rtol=1e-12)


def far_away(noise):
    """One unknown whose posterior is in the prior's tail."""
    return regression_posterior(np.ones((1, 1, 1)), np.array([[6.0]]), np.array([[noise]]))


@pytest.mark.parametrize(("steps", "least"), [(8, 2.0), (128, 0.1)])
def test_euler_steps_are_no_bound(steps, least, x64):
    """On a posterior in the tail of the prior they exceed the evidence; exact steps do not.

    By as much as the discretised reference is too wide: log E_posterior[rho(x) / N(x; 0, 1)], but
    for what is left of the noise at the start.
    """
    model = far_away(0.5)
    m, C, log_evidence = (a.item() for a in model[3:])
    exact = best_bound(Chain.exact(CONSTANT, steps), model, "free")[0].item()
    assert -0.2 < exact - log_evidence < 0
    chain = Chain.euler(CONSTANT, steps)
    value, policy = best_bound(chain, model, "free")
    value = value.item()
    assert value - log_evidence > least
    width = chain.kappa[-1]
    for r, v in zip(chain.carry[::-1], chain.variance[::-1], strict=True):
        width = r**2 * width + v
    # rho / N(0, 1) is exp(d x² / 2) / sqrt(width)
    d = 1 - 1 / width
    log_c = -0.5 * np.log(width) - 0.5 * np.log(1 - d * C) + 0.5 * d * m**2 / (1 - d * C)
    np.testing.assert_allclose(value - log_evidence, log_c, atol=0.5 if steps == 8 else 0.05)
    w = log_weights(chain, model, policy, random.split(KEY, 2000), "drawn")
    assert_mean(w, value)
    np.testing.assert_allclose(logsumexp(w) - np.log(2000), log_evidence + log_c, atol=0.05)


def test_memory_does_not_grow_with_the_steps():
    """Only states are kept for the backward pass: of what the control computes, one step's."""
    H, width = 4, 4096

    def memory(steps):
        chain = Chain.exact(RISING, steps)
        eta = jnp.ones((steps, H))

        def cost(weights):
            control = lambda k, x: jnp.tanh(weights @ x) @ weights  # noqa: E731
            return run_chain(KEY, chain, control, eta)[2]

        compiled = jax.jit(jax.grad(cost)).lower(jnp.ones((width, H))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # What 56 steps more would keep without the checkpoint: 56 x 4096 numbers, twice.
    assert memory(64) - memory(8) < 56 * width
