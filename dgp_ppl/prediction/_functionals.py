"""Functionals of predictions: moments, densities, draws and quantiles of stacked mixtures.

The functions take the S mixtures of S passes stacked by `jax.vmap`: every leaf leads with S, and
the distribution of y gives each pass the weight 1/S. B: rows.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import logsumexp, ndtri
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.core import Mixture

__all__ = [
    "draws", "log_density", "log_density_by_pass", "moments", "num_classes", "probabilities",
    "quantiles",
]  # fmt: skip


@jax.jit
def moments(laws: Mixture) -> Array:
    """Mean and variance of y over all passes, [B, 2, ...]."""
    mean, var = jax.vmap(lambda law: (law.mean, law.variance))(laws)
    return jnp.stack([mean.mean(axis=0), var.mean(axis=0) + mean.var(axis=0)], axis=1)


@jax.jit
def log_density(laws: Mixture, y: Array) -> Array:
    """log p(y) in nats, [B]: the log of the mean density over passes."""
    values = log_density_by_pass(laws, y)
    return logsumexp(values, axis=1) - jnp.log(values.shape[1])


@jax.jit
def log_density_by_pass(laws: Mixture, y: Array) -> Array:
    """log p(y | pass) in nats, [B, S]."""
    return jax.vmap(lambda law: law.log_prob(y), out_axes=1)(laws)


def num_classes(laws: Mixture) -> int | None:
    """The number of classes 0 ... C-1 of the law of y, or None if it is not of classes."""
    support = laws.support
    if support is constraints.boolean:
        return 2
    ends = [getattr(support, name, None) for name in ("lower_bound", "upper_bound")]
    if support.event_dim or ends[0] != 0 or not isinstance(ends[1], int):
        return None
    return ends[1] + 1


@partial(jax.jit, static_argnums=1)
def probabilities(laws: Mixture, num: int) -> Array:
    """p(y = c) over all passes, [B, num]."""
    rows = laws.components.batch_shape[-1]
    values = jax.vmap(lambda c: log_density(laws, jnp.full(rows, c)))(jnp.arange(num))
    return jnp.exp(values).T


@jax.jit
def draws(laws: Mixture, picked: Array, key: PRNGKey) -> Array:
    """A draw of y from each picked pass, [B, num, ...]."""

    def draw(index: Array, key: PRNGKey) -> Array:
        return jax.tree.map(lambda a: a[index], laws).sample(key)

    return jnp.moveaxis(jax.vmap(draw)(picked, random.split(key, len(picked))), 0, 1)


@jax.jit
def quantiles(laws: Mixture, levels: Array) -> Array:
    """Quantiles of y over all passes, [B, len(levels), ...]: the least y with cdf(y) >= level.

    Raises:
        NotImplementedError: if there is no distribution function, or no ends to start between.
    """
    support, centre_var = laws.support, moments(laws)
    centre, sd = centre_var[:, 0], jnp.sqrt(centre_var[:, 1])
    centre = jnp.where(jnp.isfinite(centre), centre, 0.0)
    sd = jnp.where(jnp.isfinite(sd), sd, 1 + jnp.abs(centre))
    # What a distribution function can be told from 0 and 1 in this dtype.
    eps = jnp.finfo(levels.dtype).eps
    levels = jnp.clip(levels, jnp.finfo(levels.dtype).tiny, 1 - 4 * eps)
    level = levels.reshape((-1,) + (1,) * centre.ndim)
    guess = centre + sd * ndtri(level)  # what it is for a Gaussian
    whole = bool(support.is_discrete)
    low = jnp.full_like(guess, -1.0 if whole else 0.0)
    if support in (constraints.positive, constraints.nonnegative, constraints.nonnegative_integer):
        ends = low, jnp.maximum(guess, 0) + sd + 1
    elif support in (constraints.unit_interval, constraints.boolean):
        ends = low, jnp.ones_like(guess)
    elif support is constraints.real:
        ends = guess - sd, guess + sd
    else:
        raise NotImplementedError(support)
    tolerance = jnp.ones_like(sd) if whole else 1e-6 * sd

    def cdf(y: Array) -> Array:  # [levels, B, ...] -> the same
        inside = jnp.maximum(y, 0.0) if whole else y
        values = jax.vmap(lambda y: jax.vmap(lambda law: law.cdf(y))(laws).mean(axis=0))(inside)
        return jnp.where(y < 0, 0.0, values) if whole else values

    if whole:
        ends = ends[0], jnp.ceil(ends[1])
    lower, upper, _ = _inverse(cdf, level, ends, tolerance, whole, support is constraints.real)
    return jnp.moveaxis(upper if whole else 0.5 * (lower + upper), 0, 1)


def _inverse(
    cdf: Any, level: Array, ends: tuple[Array, Array], tolerance: Array, whole: bool, real: bool
) -> tuple[Array, Array, Array]:
    """Ends with cdf(lower) < level <= cdf(upper) up to rounding, and the number of steps.

    The ends are no further apart than the tolerance. `whole`: only integers are tried; `real`: the
    first ends may lie anywhere, else the lower one stays, below all there is.

    By the Illinois form of false position, on the scale on which a Gaussian's distribution function
    is a straight line; every fourth step halves, so that no shape takes long. As many steps as the
    slowest entry needs: an evaluation can cost thousands of special functions a row.
    """
    goal, info = ndtri(level), jnp.finfo(level.dtype)
    # What rounding leaves of the level, on that scale: within it all places are the same.
    rounding = info.eps * level * jnp.sqrt(2 * jnp.pi) * jnp.exp(0.5 * jnp.square(goal))

    def excess(y: Array) -> Array:
        return ndtri(jnp.clip(cdf(y), info.tiny, 1 - info.epsneg)) - goal

    def open_(state: Any) -> Array:
        _, _, at_lower, at_upper, steps = state
        return jnp.any(((at_lower >= 0) & real) | (at_upper < 0)) & (steps < 16)

    def widen(state: Any) -> Any:
        # What is too high for a lower end will do as an upper one, and the other way round.
        lower, upper, at_lower, at_upper, steps = state
        high, short, width = (at_lower >= 0) & real, at_upper < 0, 2 * (upper - lower)
        new = jnp.where(high, lower - width, upper + width * short)
        at_new = excess(new)
        return (
            jnp.where(high, new, jnp.where(short, upper, lower)),
            jnp.where(high, lower, new),
            jnp.where(high, at_new, jnp.where(short, at_upper, at_lower)),
            jnp.where(high, at_lower, at_new),
            steps + 1,
        )

    def wanted(lower: Array, upper: Array) -> Array:
        return jnp.maximum(tolerance, 4 * info.eps * jnp.maximum(jnp.abs(lower), jnp.abs(upper)))

    def apart(state: Any) -> Array:
        lower, upper, *_, steps = state
        return jnp.any(upper - lower > wanted(lower, upper)) & (steps < 120)

    def narrow(state: Any) -> Any:
        lower, upper, at_lower, at_upper, kept, steps = state
        least = wanted(lower, upper)
        going = upper - lower > least
        rise = at_upper - at_lower
        share = jnp.where((steps % 4 == 3) | ~(rise > 0), 0.5, -at_lower / rise)
        middle = lower + share * (upper - lower)
        if whole:
            middle = jnp.clip(jnp.floor(middle), lower + 1, upper - 1)
        else:  # not so near to an end that nothing is gained
            middle = jnp.clip(middle, lower + 0.5 * least, upper - 0.5 * least)
        at_middle = excess(middle)
        below, above = at_middle < 0, at_middle >= 0
        if not whole:
            below, above = at_middle <= rounding, at_middle >= -rounding  # both: that is it
        # An end that stays twice counts half: else it might stay for good.
        slack = jnp.where(kept == jnp.where(below, 1, -1), 0.5, 1.0)
        return (
            jnp.where(going & below, middle, lower),
            jnp.where(going & above, middle, upper),
            jnp.where(below, at_middle, slack * at_lower),
            jnp.where(below, slack * at_upper, at_middle),
            jnp.where(below, 1, -1),
            steps + 1,
        )

    state = lax.while_loop(open_, widen, (*ends, *lax.map(excess, jnp.stack(ends)), 0))
    kept = jnp.zeros(jnp.shape(ends[0]), int)
    lower, upper, *_, steps = lax.while_loop(apart, narrow, (*state[:4], kept, 0))
    return lower, upper, steps
