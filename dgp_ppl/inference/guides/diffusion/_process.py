"""The denoising process: its schedule, its transitions, and the cost of a control.

A *path* of the process runs from noise x_K to x_0 through states in R^H. The *reference* process
noises N(0, I) by an Ornstein-Uhlenbeck equation, dx = -b(t) / 2 x dt + sqrt(b(t)) dB, which keeps
that distribution. A step of the reference is x_{k+1} | x_k ~ N(r_k x_k, v_k I), v_k = 1 - r_k², and
its reversal has the same coefficients. The sampler runs the reversal with a control u and with
variances eta of its own::

    x_K ~ N(0, I),    x_k | x_{k+1} ~ N(r_k x_{k+1} + c_k u_k(x_{k+1}), diag eta_k),    c = v / r

For a target density p(y, x_0), any control, any eta and any number of steps::

    log p(y) >= E[log p(y, x_0) - log q(x_0 | x_1)] - cost
    cost = E[log N(x_0; 0, I) - log N(x_0; r_0 x_1, v_0 I)] + sum_{k >= 1} E KL_k

KL_k is the divergence of the sampler's step from the reference's. The bound is Doucet et al. (2022,
"Score-based diffusion meets annealed importance sampling") on an extended target, for the process
of Vargas et al. (2023, "Denoising diffusion samplers"). If u is the score of the noised target
minus the score of the reference, the sampler's means are the means of the target's own reversal
(Tweedie's formula).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.tree_util import Partial
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey

State: TypeAlias = Float[Array, " H"]
Given = Callable[[State], State]
Control: TypeAlias = Partial
"""u, a function of a step's index k and the state x_{k+1}; its leaves are the params."""


@dataclasses.dataclass(frozen=True)
class VariancePreserving:
    """The rate b(t) at which a process adds noise: linear in the time 0 <= t <= 1.

    The reference decays at the rate b / 2 and keeps its distribution, N(0, I).

    Attributes:
        low: b at t = 0, where paths end.
        high: b at t = 1, where paths start.

    Raises:
        ValueError: if a rate is not positive.
    """

    low: float = 0.1
    high: float = 20.0

    def __post_init__(self) -> None:
        if not (0 < self.low < np.inf and 0 < self.high < np.inf):
            raise ValueError(f"schedule is {self}, wanted positive rates")


class Process(NamedTuple):
    """The coefficients of K steps; step k, counted from the end, leads from x_{k+1} to x_k."""

    times: np.ndarray  # 0 = t_0 < ... < t_K = 1, [K + 1].
    carry: np.ndarray  # r, the coefficient of the state, [K]
    gain: np.ndarray  # c, the coefficient of the control, [K]
    variance: np.ndarray  # v, the variance of the reference's step, [K]

    @staticmethod
    def build(schedule: VariancePreserving, steps: int) -> Process:
        """Build exact transitions on an even grid.

        Raises:
            ValueError: if a step leaves nothing of the state.
        """
        times = np.linspace(0, 1, steps + 1)
        # The integral of b / 2 over each step.
        decay = 0.5 * np.diff(
            schedule.low * times + 0.5 * (schedule.high - schedule.low) * times**2
        )
        carry, variance = np.exp(-decay), -np.expm1(-2 * decay)
        if not (carry > 0).all():
            raise ValueError(f"schedule is {schedule}, wanted lower rates: no state is left")
        return Process(times, carry, variance / carry, variance)


def simulate_process(
    key: PRNGKey, process: Process, control: Control, eta: Float[Array, "K H"], *,
    given: Given | None = None, drawn: bool = False,
) -> tuple[State, State, Float[Array, ""]]:  # fmt: skip
    """Draw a path down to x_1 and leave the last step to the caller.

    `eta` has the variances of the steps. `control` is u; any array besides its leaves is constant.
    It gets the value of `given`, a function of the state that is held constant, as third argument.
    The KL of each step is taken in closed form, or if `drawn` as the log ratio of densities at the
    states drawn, as importance weights require. Returns x_1, the mean of the last step, and the
    cost of the earlier steps in nats.
    """
    carry, gain, v = (
        jnp.asarray(a, eta.dtype)[:, None] for a in (process.carry, process.gain, process.variance)
    )
    states, before, controls = _walk(key, process, control, eta, given=given)
    # Of steps 1 ... K - 1.
    x, new, controls = before[1:], states[1:], controls[1:]
    if drawn:
        scale = jnp.sqrt(eta[1:])
        reference = new - carry[1:] * x
        noise = (reference - gain[1:] * controls) / scale
        terms = jnp.square(reference) / v[1:] - jnp.square(noise) - jnp.log(scale**2 / v[1:])
    else:
        ratio = eta[1:] / v[1:]
        terms = ratio + jnp.square(gain[1:] * controls) / v[1:] - 1 - jnp.log(ratio)
    return before[0], states[0], 0.5 * jnp.sum(terms)


def simulate_path(
    key: PRNGKey, process: Process, control: Control, eta: Float[Array, "K H"], *,
    given: Given | None = None,
) -> Float[Array, "K H"]:  # fmt: skip
    """Return the states x_K ... x_1 of the path that `simulate_process` draws with this key."""
    return _walk(key, process, control, eta, given=given)[1][::-1]


def _walk(
    key: PRNGKey, process: Process, control: Control, eta: Float[Array, "K H"], *,
    given: Given | None,
) -> tuple[Float[Array, "K H"], Float[Array, "K H"], Float[Array, "K H"]]:  # fmt: skip
    """Walk from noise to the last mean; return x_0 ... x_{K-1}, x_1 ... x_K and u_k(x_{k+1})."""
    (num, H), dtype = eta.shape, eta.dtype
    carry, gain = (jnp.asarray(a, dtype) for a in (process.carry, process.gain))
    key, start = random.split(key)
    x = random.normal(start, (H,), dtype)
    # What does not depend on the state is computed for all steps together, outside the loop.
    unit = jax.vmap(lambda k: random.normal(random.fold_in(key, k), (H,), dtype))
    noise = jnp.sqrt(eta[1:]) * unit(jnp.arange(1, num))
    noise = jnp.concatenate([jnp.zeros((1, H), dtype), noise])

    @jax.checkpoint  # the backward pass keeps what the control computes in one step only
    def advance(x: State, at: tuple[Array, ...], values: tuple[Array, ...]) -> tuple[State, State]:
        k, a, c, e = at
        u = control(k, x, *values)
        return a * x + c * u + e, u

    def step(x: State, at: tuple[Array, ...]) -> tuple[State, tuple[State, State]]:
        values = () if given is None else (lax.stop_gradient(given(x)),)
        new, u = advance(x, at, values)
        return new, (new, u)

    _, (states, controls) = lax.scan(step, x, (jnp.arange(num), carry, gain, noise), reverse=True)
    return states, jnp.concatenate([states[1:], x[None]]), controls


def last_step_cost(
    process: Process, x: State, mean: State, variance: State | float
) -> Float[Array, ""]:
    """Return E[log N(x_0; 0, I) - log N(x_0; r_0 x, v_0 I)] for x_0 ~ N(mean, diag variance)."""
    v = float(process.variance[0])
    gap = mean - float(process.carry[0]) * x
    terms = (jnp.square(gap) + variance) / v - (jnp.square(mean) + variance)
    return 0.5 * (jnp.sum(terms) + x.size * float(np.log(v)))
