"""Denoising processes: their schedules, their transitions, and the cost of a control.

A *path* of the process runs from noise x_K to x_0 through states in R^H. The *reference* process
noises N(0, s² I) by an Ornstein-Uhlenbeck equation, dx = -λ(t) x dt + g(t) dB. Its state at time t
is N(0, kappa_t I), so its reversal is known. The sampler runs the reversal with a control u and
with variances eta of its own::

    x_K ~ N(0, kappa_K I),    x_k | x_{k+1} ~ N(r_k x_{k+1} + c_k u_k(x_{k+1}), diag eta_k)

Here r and v are the reversal's coefficient and variance, and c = q / a for a transition
x_{k+1} | x_k ~ N(a x_k, q I) of the reference. For a target density p(y, x_0), any control, any eta
and any number of steps::

    log p(y) >= E[log p(y, x_0) - log q(x_0 | x_1)] - cost
    cost = E[log N(x_0; 0, s²) - log N(x_0; r_0 x_1, v_0)] + sum_{k >= 1} E KL_k

KL_k is the divergence of the sampler's step from the reference's. The bound is that of Doucet et
al. (2022, "Score-based diffusion meets annealed importance sampling") on an extended target, for
the process of Vargas et al. (2023, "Denoising diffusion samplers"). If u is the score of the
noised target minus the score of the reference, the sampler's means are those of the target's own
reversal (Tweedie's formula).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.guides.diffusion._walk import Control, Given, State, Walk, walk

__all__ = [
    "Estimator",
    "OrnsteinUhlenbeck",
    "Process",
    "Schedule",
    "VariancePreserving",
    "last_step_cost",
    "simulate_path",
    "simulate_process",
]

Estimator = Literal["expected", "landing", "drawn"]


@runtime_checkable
class Schedule(Protocol):
    """The rates at which the reference adds noise, over 0 <= t <= horizon.

    The reference starts from N(0, variance I) at t = 0. Schedules must be hashable.
    """

    @property
    def horizon(self) -> float: ...

    @property
    def variance(self) -> float: ...

    def rate(self, t: np.ndarray) -> np.ndarray:
        """Return λ(t), the rate of decay of the state, at an array of times."""
        ...

    def diffusion(self, t: np.ndarray) -> np.ndarray:
        """Return g(t)², the rate at which variance is added, at an array of times."""
        ...


@dataclasses.dataclass(frozen=True)
class VariancePreserving:
    """A schedule that keeps the reference's variance at s²: λ = b / 2 and g² = b s².

    The rate b is linear in time.

    Attributes:
        low: b at t = 0, where paths end.
        high: b at t = T, where paths start.
        horizon: T, the length of the process.
        variance: s², the variance of the reference.
    """

    low: float = 0.1
    high: float = 20.0
    horizon: float = 1.0
    variance: float = 1.0

    def rate(self, t: np.ndarray) -> np.ndarray:
        return 0.5 * (self.low + (self.high - self.low) * t / self.horizon)

    def diffusion(self, t: np.ndarray) -> np.ndarray:
        return 2 * self.variance * self.rate(t)


@dataclasses.dataclass(frozen=True)
class OrnsteinUhlenbeck:
    """A schedule with arbitrary rates, given as functions of time.

    Attributes:
        decay: λ, a function from an array of times to rates, in NumPy.
        spread: g², a function of the same kind.
        horizon: T, the length of the process.
        variance: s², the variance of the reference at t = 0.
    """

    decay: Callable[[np.ndarray], np.ndarray]
    spread: Callable[[np.ndarray], np.ndarray]
    horizon: float = 1.0
    variance: float = 1.0

    def rate(self, t: np.ndarray) -> np.ndarray:
        return self.decay(t) + np.zeros_like(t)

    def diffusion(self, t: np.ndarray) -> np.ndarray:
        return self.spread(t) + np.zeros_like(t)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def _integral(function: Callable[[np.ndarray], np.ndarray], a: np.ndarray, b: float) -> np.ndarray:
    """Integrate a smooth function over [a, b], for an array of lower limits a."""
    half = 0.5 * (b - np.asarray(a))
    values = function(b - half[..., None] * (1 + _NODES))
    return half * (values @ _WEIGHTS)


def _transition(
    schedule: Schedule, start: float, stop: float, power: int = 2
) -> tuple[float, float]:
    """Return a and q of x_stop | x_start ~ N(a x_start, q I).

    A `power` of 2 is correct; 1 gives the q of the published formula (see `Process.euler`).
    """

    def new_variance(t: np.ndarray) -> np.ndarray:
        return schedule.diffusion(t) * np.exp(-power * _integral(schedule.rate, t, stop))

    decay = _integral(schedule.rate, np.array(start), stop)
    return float(np.exp(-decay)), float(_integral(new_variance, np.array(start), stop))


def _reference(
    schedule: Schedule, steps: int, power: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return an even grid of times, a and q of its transitions, and kappa.

    `power` is that of `_transition`.
    """
    times = np.linspace(0, schedule.horizon, steps + 1)
    pairs = list(itertools.pairwise(times))
    a, q = np.array([_transition(schedule, *pair, power) for pair in pairs]).T
    kappa = np.array([schedule.variance, *np.zeros(steps)])
    for k, (start, stop) in enumerate(pairs):
        kappa[k + 1] = a[k] ** power * kappa[k] + q[k]
        if not (kappa[0] > 0 and q[k] > 0 and a[k] > 0 and np.isfinite(a[k])):
            raise ValueError(
                f"schedule is {schedule}, wanted rates that keep some of the state and add noise: "
                f"from t = {start:.3g} to {stop:.3g} it multiplies the state by {a[k]:.3g} and "
                f"adds variance {q[k]:.3g} to {kappa[k]:.3g}; use positive numbers, such as those "
                f"of {VariancePreserving()}"
            )
    return times, a, q, kappa


class Process(NamedTuple):
    """The coefficients of a denoising process of K steps, as NumPy arrays.

    Index k counts from the end of a path: step k leads from x_{k+1} to x_k.

    Attributes:
        times: 0 = t_0 < ... < t_K, [K + 1].
        kappa: variance of the reference's states, [K + 1].
        carry: r, the coefficient of the state in the reference's reversal, [K].
        gain: c, the coefficient of the control, [K].
        variance: v, the variance of the reference's reversal, [K].
        initial_variance: variance of x_K. A value other than kappa_K costs a KL divergence.
        first_control_free: whether the cost leaves out the control of the first step taken. True
            for `euler` only.
    """

    times: np.ndarray
    kappa: np.ndarray
    carry: np.ndarray
    gain: np.ndarray
    variance: np.ndarray
    initial_variance: float
    first_control_free: bool = False

    @staticmethod
    def exact(schedule: Schedule, steps: int) -> Process:
        """Build exact transitions on an even grid. The bound holds at any number of steps."""
        times, a, q, kappa = _reference(schedule, steps)
        ratio = kappa[:-1] / kappa[1:]
        return Process(times, kappa, a * ratio, q / a, q * ratio, kappa[-1])

    @staticmethod
    def euler(schedule: Schedule, steps: int) -> Process:
        """Build the algorithm that Xu & Zeng (2024, DDVI) print.

        Its objective is not a bound: it can exceed the evidence. It differs from `exact` in three
        ways:

        - It takes Euler steps from N(0, s² I), with the rates at the time each step starts from.
        - ``kappa_t = exp(-Λ_t) (s² + int_0^t g² exp(Λ))``, where Λ is the integral of λ. The
          correct formula has 2 Λ in both exponents.
        - A control u costs g² dt |u|² / 2 at the state and time where a step *ends*. The control
          of the first step is therefore free. One at time 0, where no step starts, is charged;
          we leave it at its optimum, zero.

        The paper's unit steps correspond to λ and g multiplied by dt and its square root.
        """
        times, *_, kappa = _reference(schedule, steps, power=1)
        begin, dt = times[1:], np.diff(times)
        gain = schedule.diffusion(begin) * dt
        carry = 1 + schedule.rate(begin) * dt - gain / kappa[1:]
        variance = schedule.variance
        return Process(times, kappa, carry, gain, gain, variance, first_control_free=True)


def simulate_process(
    key: PRNGKey,
    process: Process,
    control: Control,
    eta: Float[Array, "K H"],
    *,
    given: Given | None = None,
    estimator: Estimator = "expected",
) -> tuple[State, State, Float[Array, ""]]:
    """Draw a path down to x_1 and leave the last step to the caller.

    Args:
        key: random key.
        process: coefficients of the process.
        control: u, a function of a step's index k and the state x_{k+1}, with its params as leaves.
        eta: variances of the steps.
        given: a function of the state for the control; see `walk`.
        estimator: estimator of the cost. ``"expected"`` uses the closed form of each step's KL. The
            others use log ratios of densities at the states drawn. ``"drawn"`` is the plain ratio.
            ``"landing"`` holds the params of the sampler's density constant (Roeder et al. 2017,
            "Sticking the landing"): it has the same expectation, and less noise near the optimum.

    Returns:
        The state x_1 from which the last step starts, the mean of that step, and the cost of the
        earlier steps in nats.
    """
    dtype = eta.dtype
    carry, gain, v = (
        jnp.asarray(a, dtype)[:, None] for a in (process.carry, process.gain, process.variance)
    )
    path = _path(key, process, control, eta, given=given)
    # Of steps 1 ... K - 1.
    x, new, controls, scale = path.before[1:], path.states[1:], path.controls[1:], jnp.sqrt(eta[1:])
    if estimator == "expected":
        ratio = eta[1:] / v[1:]
        terms = ratio + jnp.square(gain[1:] * controls) / v[1:] - 1 - jnp.log(ratio)
    else:
        if estimator == "landing":
            scale = lax.stop_gradient(scale)
            values = (a[1:] for a in path.given)
            controls = jax.vmap(lax.stop_gradient(control))(jnp.arange(1, len(eta)), x, *values)
        reference = new - carry[1:] * x
        noise = (reference - gain[1:] * controls) / scale
        terms = jnp.square(reference) / v[1:] - jnp.square(noise) - jnp.log(scale**2 / v[1:])
    initial = process.initial_variance / process.kappa[-1]
    cost = jnp.asarray(0.5 * x.shape[1] * (initial - 1 - np.log(initial)), dtype)
    cost = cost + 0.5 * jnp.sum(terms)
    if process.first_control_free:
        first = path.controls[-1]
        cost = cost - 0.5 * jnp.sum(jnp.square(gain[-1] * first)) / v[-1, 0]
    return path.before[0], path.states[0], cost


def simulate_path(
    key: PRNGKey,
    process: Process,
    control: Control,
    eta: Float[Array, "K H"],
    *,
    given: Given | None = None,
) -> Float[Array, "K H"]:
    """Return the states x_K ... x_1 of the path that `simulate_process` draws with this key."""
    return _path(key, process, control, eta, given=given).before[::-1]


def _path(
    key: PRNGKey,
    process: Process,
    control: Control,
    eta: Float[Array, "K H"],
    *,
    given: Given | None,
) -> Walk:
    """Walk from noise to the mean of the last step, to which no noise is added.

    What does not depend on the state is computed for all steps at once, outside the loop.
    """
    (num, H), dtype = eta.shape, eta.dtype
    carry, gain = (jnp.asarray(a, dtype) for a in (process.carry, process.gain))
    key, start = random.split(key)
    x = jnp.asarray(np.sqrt(process.initial_variance), dtype) * random.normal(start, (H,), dtype)
    unit = jax.vmap(lambda k: random.normal(random.fold_in(key, k), (H,), dtype))
    noise = jnp.sqrt(eta[1:]) * unit(jnp.arange(1, num))
    noise = jnp.concatenate([jnp.zeros((1, H), dtype), noise])
    return walk(control, x, carry, gain, noise, given=given)


def last_step_cost(
    process: Process, x: State, mean: State, variance: State | float
) -> Float[Array, ""]:
    """Return E[log N(x_0; 0, s² I) - log N(x_0; r_0 x_1, v_0 I)], x_0 ~ N(mean, diag variance).

    Args:
        process: coefficients of the process.
        x: the state x_1 from which the last step starts.
        mean: mean of the last step.
        variance: variance of the last step; 0 evaluates the difference at x_0 = mean.
    """
    prior, v = float(process.kappa[0]), float(process.variance[0])
    gap = mean - float(process.carry[0]) * x
    terms = (jnp.square(gap) + variance) / v - (jnp.square(mean) + variance) / prior
    return 0.5 * (jnp.sum(terms) + x.size * float(np.log(v / prior)))
