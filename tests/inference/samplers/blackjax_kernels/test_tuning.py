"""The rules of the microcanonical kernels' warm-up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random
from support.helpers import KEY

from dgp_ppl.inference.samplers.blackjax_kernels._tuning import (
    AcceptanceSearch,
    AutocorrelationLength,
    EnergySearch,
    Moments,
    Move,
    Tuner,
    TurnLength,
)


def test_moments():
    values = random.normal(KEY, (50, 3)) * jnp.array([1.0, 0.01, 100.0]) + 5
    found = Moments.empty(values[0])
    for value in values:
        found = found.with_value(value)
    np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(found.variance, values.var(axis=0, ddof=1), rtol=1e-3)


def searched(search, report, steps=400, first=1.0):
    """Return the last tenth of the step sizes and the best, of reports at each step size."""

    def step(carry, key):
        state, size = carry
        state, size, best = search.update(state, size, report(key, size))
        return (state, size), (size, best)

    first = jnp.asarray(first)
    keys = random.split(KEY, steps)
    _, (sizes, best) = jax.jit(lambda: lax.scan(step, (search.init(first), first), keys))()
    return sizes[-steps // 10 :], float(best[-1])


def test_energy_search():
    """Errors c step³ times a normal variable have the wanted variance at (d v)^(1/6) c^(-1/3).

    The search remembers some 200 of 400 steps: the relative error of a mean of 200 squares is 0.1,
    that of the step size a sixth of it, 0.017.
    """
    search = EnergySearch(5e-4, dim=10)
    sizes, best = searched(search, lambda key, size: 40 * size**3 * random.normal(key))
    wanted = (10 * 5e-4) ** (1 / 6) * 40 ** (-1 / 3)
    assert best == pytest.approx(wanted, rel=4 * 0.017)
    assert best == sizes[-1]


def test_energy_search_below_a_cliff():
    """Steps above 0.3 are not finite; the search stays below, with zeros for errors."""
    report = lambda key, size: jnp.where(size > 0.3, jnp.nan, 0.0)  # noqa: E731
    sizes, _ = searched(EnergySearch(5e-4, dim=10), report)
    assert (sizes <= 0.3).all()
    assert (sizes > 0.2).all()


def test_acceptance_search():
    """An acceptance probability of exp(-step) is 0.8 at a step of 0.223."""
    _, best = searched(AcceptanceSearch(0.8), lambda key, size: jnp.exp(-size))
    assert best == pytest.approx(-np.log(0.8), rel=0.05)


def tuned(rule, moves, *, scale=1.0, step_size=0.1, **options):
    """Return the tuning after warm-up on moves (positions, momenta)."""
    options = {"step_size": step_size, "length": None, "precondition": True} | options
    tuner = Tuner(EnergySearch(5e-4, 2), rule, **options)
    positions, momenta = moves
    total = len(positions)

    def step(carry, move):
        tuning, i = carry
        new = tuner.update(tuning, i, jnp.asarray(total), Move(*move, jnp.zeros(())))
        return (new, i + 1), tuning.measuring

    start = (tuner.init(positions[0]), jnp.zeros((), int))
    (tuning, _), measuring = jax.jit(lambda: lax.scan(step, start, (positions, momenta)))()
    return tuning, measuring


def circle(radius, steps, step_size=0.1):
    """Positions and momenta on a circle of the plane."""
    angles = jnp.arange(steps) * step_size / radius
    turn = lambda a: jnp.stack([jnp.cos(a), jnp.sin(a)], axis=-1)  # noqa: E731
    return radius * turn(angles), turn(angles + jnp.pi / 2)


def test_turns_of_a_circle():
    """A path on a circle turns back after half of it, so the length is the radius.

    The window has 30 / (1.5 pi) = 6.4 turns; the unfinished one is counted as a half.
    """
    tuning, measuring = tuned(TurnLength(), circle(1.5, 1000), precondition=False)
    assert float(tuning.length) == pytest.approx(1.5, rel=0.5 / 6.4)
    # The window is 300 of 1,000 steps.
    assert int(measuring.sum()) == 300


def test_scales_are_standard_deviations():
    positions = jnp.array([0.01, 3.0]) * random.normal(KEY, (2000, 2))
    tuning, _ = tuned(TurnLength(), (positions, positions))
    # 400 draws of the last window; Stan's shrinkage adds 5e-3 / 405 to the variance of 1e-4.
    error = 1 / np.sqrt(2 * 400)
    np.testing.assert_allclose(tuning.scale, [np.sqrt(1e-4 + 5e-3 / 405), 3.0], rtol=4 * error)
    assert tuned(TurnLength(), (positions, positions), length=2.0)[0].length == 2.0


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_length_from_autocorrelation(correlation):
    """AR(1) draws with correlation r have the autocorrelation time (1 + r) / (1 - r)."""
    noise = random.normal(KEY, (10_000, 50))

    def step(x, e):
        x = correlation * x + np.sqrt(1 - correlation**2) * e
        return x, x

    draws = lax.scan(step, noise[0], noise)[1]
    tuning, _ = tuned(AutocorrelationLength(), (draws, draws))
    time = (1 + correlation) / (1 - correlation)
    # Ten batch means in 50 coordinates: the relative error of the time is sqrt(2 / 9 / 50) = 0.07.
    wanted = 0.5 * np.pi * np.sqrt(50) * min(np.sqrt(time), 4)
    assert float(tuning.length) == pytest.approx(wanted, rel=4 * 0.035)


@pytest.mark.parametrize("total", [1, 2, 5, 20])
@pytest.mark.parametrize("rule", [TurnLength(), AutocorrelationLength()])
def test_short_warm_ups_are_finite(rule, total):
    tuning, _ = tuned(rule, circle(1.0, total), step_size=None)
    for leaf in (tuning.step_size, tuning.length, tuning.scale):
        assert jnp.isfinite(leaf).all()
        assert (leaf > 0).all()
