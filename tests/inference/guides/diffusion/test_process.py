import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.tree_util import Partial
from scipy.integrate import solve_ivp
from support.helpers import KEY, assert_mean
from support.linear_gaussian import FALLING, NARROW, RISING

from dgp_ppl.inference.guides.diffusion._process import (
    OrnsteinUhlenbeck,
    Process,
    VariancePreserving,
    last_step_cost,
    simulate_path,
    simulate_process,
)


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
        process = Process.exact(schedule, steps)
        truth = solve_ivp(
            slope, (0, 1), [schedule.variance], t_eval=process.times, rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(process.kappa, truth.y[0], rtol=1e-9)
        np.testing.assert_allclose(process.kappa[-1], kappa, atol=5e-7)


@pytest.mark.parametrize(
    ("schedule", "kappa"),
    [
        (OrnsteinUhlenbeck(lambda t: 1.0, lambda t: 1.0), 1.0),
        (VariancePreserving(2.0, 2.0), 1.632121),
        (VariancePreserving(0.1, 20.0), 1.993428),
        (VariancePreserving(2.0, 2.0, variance=0.25), 0.408030),
        (OrnsteinUhlenbeck(lambda t: 1 + t, lambda t: (0.5 + t**2) ** 2, variance=2.0), 0.939901),
        (OrnsteinUhlenbeck(lambda t: 0.0, lambda t: 1.0), 2.0),
    ],
)
def test_the_printed_variance_is_another(schedule, kappa):
    for steps in (1, 7):
        np.testing.assert_allclose(Process.euler(schedule, steps).kappa[-1], kappa, atol=5e-7)


@pytest.mark.parametrize("steps", [1, 5])
def test_the_printed_algorithm_term_by_term(steps, x64):
    """The printed sum, written out, is the cost of the process and its last step, path by path."""
    decay, spread, s2, H = (lambda t: 1 + t), (lambda t: (0.5 + t**2) ** 2), 0.7, 3
    process = Process.euler(OrnsteinUhlenbeck(decay, spread, horizon=2.0, variance=s2), steps)
    t, dt = np.linspace(0, 2, steps + 1), 2 / steps
    slope = lambda t, kappa: -decay(t) * kappa + spread(t)  # noqa: E731
    kappa = solve_ivp(slope, (0, 2), [s2], t_eval=t, rtol=1e-11, atol=1e-12).y[0]
    score = lambda t, x: jnp.sin(2 * x + t)  # noqa: E731
    control = Partial(lambda k, x: score(jnp.asarray(t)[k + 1], x) + x / jnp.asarray(kappa)[k + 1])
    v = spread(t[1:]) * dt
    eta = jnp.tile(jnp.asarray(v)[:, None], H)

    states = simulate_path(KEY, process, control, eta)[::-1]  # x_1 ... x_K
    mean = states[0] + (decay(t[1]) * states[0] + spread(t[1]) * score(t[1], states[0])) * dt
    penalty = 0.5 * H * (s2 / kappa[-1] - 1 - np.log(s2 / kappa[-1]))
    for k in range(1, steps):  # where a step ends, but for time 0
        gap = states[k - 1] / kappa[k] + score(t[k], states[k - 1])
        penalty += 0.5 * spread(t[k]) * dt * jnp.sum(jnp.square(gap))
    log_fix = -0.5 * (H * np.log(2 * np.pi * s2) + (jnp.sum(mean**2) + H * v[0]) / s2)

    x, end, cost = simulate_process(KEY, process, control, eta)
    np.testing.assert_allclose(x, states[0], rtol=1e-10)
    np.testing.assert_allclose(end, mean, rtol=1e-8)
    log_q = -0.5 * H * (np.log(2 * np.pi * v[0]) + 1)
    total = cost + last_step_cost(process, x, end, eta[0]) + log_q
    np.testing.assert_allclose(total, penalty + log_fix, rtol=1e-8)


@pytest.mark.parametrize(("build", "variance"), [(Process.exact, None), (Process.euler, 1.0)])
def test_where_paths_start(build, variance):
    """Exact: at the reference's noise. As printed: from the reference's distribution at time 0."""
    process = build(FALLING, 1)
    eta = jnp.ones((1, 3))
    first = lambda key: simulate_path(key, process, Partial(lambda k, x: x), eta)[0]  # noqa: E731
    draws = jax.vmap(first)(random.split(KEY, 3000))
    assert_mean(jnp.square(draws), process.kappa[-1] if variance is None else variance)
    assert abs(process.kappa[-1] - 1) > 0.2


@pytest.mark.parametrize(
    "schedule",
    [
        VariancePreserving(-5.0, -5.0),
        VariancePreserving(0.0, 0.0),
        VariancePreserving(horizon=-1.0),
        VariancePreserving(variance=-1.0),
        VariancePreserving(high=float("nan")),
        VariancePreserving(high=1e5),
        OrnsteinUhlenbeck(lambda t: 1.0, lambda t: 1.0, variance=0.0),
        OrnsteinUhlenbeck(lambda t: 1.0, lambda t: -1.0),
    ],
)
def test_schedules_that_do_not_noise(schedule):
    for build in (Process.exact, Process.euler):
        with pytest.raises(ValueError, match=r"schedule is .*, wanted rates that keep some"):
            build(schedule, 4)


def test_expected_cost_of_the_last_step(x64):
    process = Process.exact(FALLING, 3)
    x, mean, eta = random.normal(KEY, (3, 4)) ** 2 + 0.1
    ends = mean + jnp.sqrt(eta) * random.normal(random.key(1), (20_000, 4))
    draws = jax.vmap(lambda end: last_step_cost(process, x, end, 0.0))(ends)
    assert_mean(draws, last_step_cost(process, x, mean, eta))


def test_no_control_costs_nothing(x64):
    """Process and reference are then equal: log q(x_0 | x_1) + cost is log N(x_0; 0, s²)."""
    process = Process.exact(NARROW, 5)
    eta = jnp.tile(jnp.asarray(process.variance)[:, None], 3)
    for estimator in ("expected", "drawn"):
        x, mean, cost = simulate_process(
            KEY, process, Partial(lambda k, x: jnp.zeros(3)), eta, estimator=estimator
        )
        assert abs(cost) < 1e-12
        np.testing.assert_allclose(mean, process.carry[0] * x)
        end = mean + 0.3
        own = jax.scipy.stats.norm.logpdf(end, mean, jnp.sqrt(eta[0]))
        prior = jax.scipy.stats.norm.logpdf(end, 0, np.sqrt(0.25))
        total = jnp.sum(own) + last_step_cost(process, x, end, 0.0)
        np.testing.assert_allclose(total, jnp.sum(prior), rtol=1e-12)


def test_memory_does_not_grow_with_the_steps():
    """On a CPU: the backward pass keeps the control's intermediates of one step only."""
    H, width = 4, 4096

    def memory(steps):
        process = Process.exact(RISING, steps)
        eta = jnp.ones((steps, H))

        def cost(weights):
            control = Partial(lambda w, k, x: jnp.tanh(w @ x) @ w, weights)
            return simulate_process(KEY, process, control, eta)[2]

        compiled = jax.jit(jax.grad(cost)).lower(jnp.ones((width, H))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # Without the checkpoint 56 more steps would keep 2 x 56 x 4096 numbers.
    assert memory(64) - memory(8) < 56 * width


@pytest.mark.parametrize("build", [Process.exact, Process.euler])
@pytest.mark.parametrize("estimator", ["drawn", "landing"])
def test_estimators_of_the_cost_have_the_same_mean_gradient(build, estimator, x64):
    """Also in the control of the first step, which is free in Euler's discretisation."""
    process = build(RISING, 3)
    eta = jnp.broadcast_to(jnp.asarray(process.variance)[:, None], (3, 1))

    def gradient(key, kind):
        def cost(theta):
            control = Partial(lambda theta, k, x: theta[k] + 0 * x, theta)
            return simulate_process(key, process, control, eta, estimator=kind)[2]

        return jax.grad(cost)(jnp.array([0.4, -0.3, 0.7]))

    keys = random.split(KEY, 4000)
    found = jax.jit(jax.vmap(lambda key: gradient(key, estimator)))(keys)
    wanted = jax.jit(jax.vmap(lambda key: gradient(key, "expected")))(keys)
    for i in range(3):
        assert_mean(np.asarray(found - wanted)[:, i], 0.0)
