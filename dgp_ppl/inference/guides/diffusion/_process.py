"""Denoising chains: schedules, their transitions, and what a controlled chain costs.

A chain runs from noise x_K to x_0 through states [H]. The reference noises N(0, s² I) by an
Ornstein-Uhlenbeck process, dx = -λ(t) x dt + g(t) dB, so its state at every time is N(0, kappa_t I)
and its reversal is known. The sampler runs the reversal with a control and variances of its own:

    x_k | x_{k+1} ~ N(r_k x_{k+1} + c_k u_k(x_{k+1}), diag eta_k),    x_K ~ N(0, kappa_K I)

With the reversal's own r, v of the transition between two times, c = q / a, and a target whose
density is p(y, x_0), for any control, any eta and any number of steps

    log p(y) >= E[log p(y, x_0) - log q(x_0 | x_1)] - cost,
    cost = E[log N(x_0; 0, s²) - log N(x_0; r_0 x_1, v_0)] + sum_{k >= 1} E KL_k,

with KL_k that of the sampler's step to the reference's. (Doucet et al. 2022, "Score-based diffusion
meets annealed importance sampling", for the extended target; Vargas et al. 2023, "Denoising
diffusion samplers", for the chain.) With u the difference of the scores of the noised target and of
the reference, the means are the target's own (Tweedie).
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey

__all__ = [
    "Chain",
    "Control",
    "Estimator",
    "OrnsteinUhlenbeck",
    "Schedule",
    "VariancePreserving",
    "last_step_cost",
    "simulate_path",
    "simulate_process",
]

State: TypeAlias = Float[Array, " H"]
Control = Callable[[Array, State], State]
Estimator = Literal["expected", "landing", "detached", "drawn"]


@runtime_checkable
class Schedule(Protocol):
    """How the reference noises: rates over 0 <= t <= horizon, from N(0, variance I)."""

    @property
    def horizon(self) -> float: ...

    @property
    def variance(self) -> float: ...

    def rate(self, t: np.ndarray) -> np.ndarray:
        """λ(t), the rate of decay."""
        ...

    def diffusion(self, t: np.ndarray) -> np.ndarray:
        """g(t)², the rate of new variance."""
        ...


@dataclasses.dataclass(frozen=True)
class VariancePreserving:
    """λ = b / 2 and g² = b s², with b linear in time: kappa is s² at all times.

    Attributes:
        low: b at t = 0, where the chain ends.
        high: b at the horizon, where it starts.
        horizon: T.
        variance: s².
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
    """Any rates.

    Attributes:
        decay: λ, from times to rates, in NumPy.
        spread: g², likewise.
        horizon: T.
        variance: s².
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
    """Integrals of a smooth function over [a, b], for an array of lower ends."""
    half = 0.5 * (b - np.asarray(a))
    values = function(b - half[..., None] * (1 + _NODES))
    return half * (values @ _WEIGHTS)


def _transition(
    schedule: Schedule, start: float, stop: float, power: int = 2
) -> tuple[float, float]:
    """a and q of x_stop | x_start ~ N(a x_start, q I); q with a to this power for its square."""

    def new_variance(t: np.ndarray) -> np.ndarray:
        return schedule.diffusion(t) * np.exp(-power * _integral(schedule.rate, t, stop))

    decay = _integral(schedule.rate, np.array(start), stop)
    return float(np.exp(-decay)), float(_integral(new_variance, np.array(start), stop))


def _reference(
    schedule: Schedule, steps: int, power: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times of an even grid, a and q of its transitions, and kappa; `power` as of `_transition`."""
    times = np.linspace(0, schedule.horizon, steps + 1)
    pairs = list(itertools.pairwise(times))
    a, q = np.array([_transition(schedule, *pair, power) for pair in pairs]).T
    kappa = np.array([schedule.variance, *np.zeros(steps)])
    for k, (start, stop) in enumerate(pairs):
        kappa[k + 1] = a[k] ** power * kappa[k] + q[k]
        if not (kappa[0] > 0 and q[k] > 0 and a[k] > 0 and np.isfinite(a[k])):
            raise ValueError(
                f"schedule is {schedule}, wanted rates that keep some of the state and add noise: "
                f"from t = {start:.3g} to {stop:.3g} it keeps the share {a[k]:.3g} and adds the "
                f"variance {q[k]:.3g} to {kappa[k]:.3g}; take positive numbers, such as those of "
                f"{VariancePreserving()}"
            )
    return times, a, q, kappa


class Chain(NamedTuple):
    """The numbers of a chain of K steps, in NumPy; index k runs from the end of the chain.

    Attributes:
        times: 0 = t_0 < ... < t_K, [K + 1].
        kappa: variance of the reference's states, [K + 1].
        carry: r, what the reference's reversal keeps of the state, [K].
        gain: c, what a unit of control adds, [K].
        variance: v, of the reference's reversal, [K].
        start: variance of x_K; what differs from kappa_K costs a KL.
        first_free: whether the first step's control costs nothing, as printed: see `printed`.
    """

    times: np.ndarray
    kappa: np.ndarray
    carry: np.ndarray
    gain: np.ndarray
    variance: np.ndarray
    start: float
    first_free: bool = False

    @staticmethod
    def exact(schedule: Schedule, steps: int) -> "Chain":
        """Exact transitions on an even grid: the bound holds at any number of steps."""
        times, a, q, kappa = _reference(schedule, steps)
        ratio = kappa[:-1] / kappa[1:]
        return Chain(times, kappa, a * ratio, q / a, q * ratio, kappa[-1])

    @staticmethod
    def printed(schedule: Schedule, steps: int) -> "Chain":
        """The algorithm printed by Xu & Zeng (DDVI). No bound: it can exceed the evidence.

        Euler steps from N(0, s² I), of rates at the time they are taken from, and with
        ``kappa_t = exp(-Λ_t) (s² + int_0^t g² exp(Λ))``, Λ the integral of λ, which drops the
        factor 2 of both exponents. (Its unit steps have λ and g multiplied by dt and its root.) A
        control u is charged g² dt |u|² / 2 at the state and time where a step *ends*. So that of
        the first step is free, and one at time 0, where no step is taken, is charged: that one is
        left at its best, zero.
        """
        times, *_, kappa = _reference(schedule, steps, power=1)
        begin, dt = times[1:], np.diff(times)
        gain = schedule.diffusion(begin) * dt
        carry = 1 + schedule.rate(begin) * dt - gain / kappa[1:]
        return Chain(times, kappa, carry, gain, gain, schedule.variance, first_free=True)


def simulate_process(
    key: PRNGKey,
    chain: Chain,
    control: Control,
    eta: Float[Array, "K H"],
    *,
    held: Control | None = None,
    estimator: Estimator = "expected",
) -> tuple[State, State, Float[Array, ""]]:
    """Draw a chain down to its last step, which is left to the caller.

    In memory are the K states; what `control` computes is computed anew in the backward pass.

    Args:
        key: random key.
        chain: its numbers.
        control: u, from a step's index k and the state x_{k+1} to a state.
        eta: variances of the steps.
        held: `control` with its params held constant, for ``"landing"``.
        estimator: of the cost. ``"expected"`` takes each step's KL in closed form. The others take
            log ratios of densities at the states drawn: ``"drawn"`` plainly; ``"landing"`` with the
            sampler's own density held constant but for the state (Roeder et al. 2017, "Sticking the
            landing": the same expectation, less noise near the optimum); ``"detached"`` with the
            states held constant, for objectives that differentiate densities alone.

    Returns:
        The state x_1 that the last step starts from, its mean, and the cost of the steps before.
    """
    dtype = eta.dtype
    carry, gain, v = (jnp.asarray(a, dtype) for a in (chain.carry, chain.gain, chain.variance))
    x, mean_of, noise_of = _begin(key, chain, control, eta)

    @jax.checkpoint
    def step(state: tuple[State, Array], k: Array) -> tuple[tuple[State, Array], None]:
        x, cost = state
        mean, scale = mean_of(k, x), jnp.sqrt(eta[k])
        new = mean + noise_of(k)
        if estimator == "expected":
            gap = jnp.square(mean - carry[k] * x)
            terms = (eta[k] + gap) / v[k] - 1 - jnp.log(eta[k] / v[k])
        else:
            own = scale
            if estimator == "detached":
                new = lax.stop_gradient(new)
            elif estimator == "landing":
                assert held is not None
                own = lax.stop_gradient(scale)
                mean = carry[k] * x + gain[k] * held(k, x)
            to_reference = jnp.square(new - carry[k] * x) / v[k]
            to_own = jnp.square((new - mean) / own)
            terms = to_reference - to_own - 2 * jnp.log(own) + jnp.log(v[k])
        return (new, cost + 0.5 * jnp.sum(terms)), None

    ratio = chain.start / chain.kappa[-1]
    cost = jnp.asarray(0.5 * x.size * (ratio - 1 - np.log(ratio)), dtype)
    if chain.first_free:
        first = jnp.asarray(len(eta) - 1)
        cost = cost - 0.5 * jnp.sum(jnp.square(mean_of(first, x) - carry[first] * x)) / v[first]
    (x, cost), _ = lax.scan(step, (x, cost), jnp.arange(1, len(eta)), reverse=True)
    return x, mean_of(jnp.zeros((), int), x), cost


def simulate_path(
    key: PRNGKey, chain: Chain, control: Control, eta: Float[Array, "K H"]
) -> Float[Array, "K H"]:
    """The states x_K ... x_1 of the chain that `simulate_process` draws with this key."""
    x, mean_of, noise_of = _begin(key, chain, control, eta)

    def step(x: State, k: Array) -> tuple[State, State]:
        new = mean_of(k, x) + noise_of(k)
        return new, new

    _, states = lax.scan(step, x, jnp.arange(1, len(eta)), reverse=True)
    return jnp.concatenate([x[None], states[::-1]])


def _begin(
    key: PRNGKey, chain: Chain, control: Control, eta: Float[Array, "K H"]
) -> tuple[State, Control, Callable[[Array], State]]:
    """The state x_K, and what makes up x_k: its mean given x_{k+1}, and its noise."""
    H, dtype = eta.shape[1], eta.dtype
    carry, gain = (jnp.asarray(a, dtype) for a in (chain.carry, chain.gain))
    key, start = random.split(key)
    x = jnp.asarray(np.sqrt(chain.start), dtype) * random.normal(start, (H,), dtype)

    def mean_of(k: Array, x: State) -> State:
        return carry[k] * x + gain[k] * control(k, x)

    def noise_of(k: Array) -> State:
        return jnp.sqrt(eta[k]) * random.normal(random.fold_in(key, k), (H,), dtype)

    return x, mean_of, noise_of


def last_step_cost(
    chain: Chain, x: State, mean: State, variance: State | float
) -> Float[Array, ""]:
    """E[log N(x_0; 0, s² I) - log N(x_0; r_0 x_1, v_0 I)] over x_0 ~ N(mean, diag variance).

    Args:
        chain: the chain's numbers.
        x: the state x_1 that the last step starts from.
        mean: of the last step.
        variance: of the last step; 0 for the value at x_0 = mean.
    """
    prior, v = float(chain.kappa[0]), float(chain.variance[0])
    gap = mean - float(chain.carry[0]) * x
    terms = (jnp.square(gap) + variance) / v - (jnp.square(mean) + variance) / prior
    return 0.5 * (jnp.sum(terms) + x.size * float(np.log(v / prior)))
