"""Incomplete gamma and beta functions that keep their digits for large arguments in float32.

JAX's series lose digits as the arguments grow, and return noise at a million.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import betainc, erfc, gammainc, gammaincc
from jaxtyping import Array

__all__ = ["incomplete_beta", "incomplete_gamma"]

_LARGE = 20.0  # two terms of the expansion then have the accuracy of float32
_LARGE_IN_FLOAT64 = 1e5


def incomplete_gamma(a: Array, x: Array) -> Array:
    """Return the regularised upper incomplete gamma function Q(a, x), elementwise.

    Source: Temme (1979), with two terms of the expansion (DLMF 8.12.8) where a is large.

    Args:
        a: at least 1.
        x: at least 0.
    """
    large = _LARGE if a.dtype == jnp.float32 else _LARGE_IN_FLOAT64
    is_large = a >= large
    x = jnp.clip(x, 1e-30, 1e30)
    # Both branches have finite derivatives everywhere, as jnp.where needs.
    few = gammaincc(jnp.where(is_large, 1.0, a), jnp.where(is_large, 1.0, x))
    a, x = jnp.where(is_large, a, large), jnp.where(is_large, x, large)
    gap = _within((x - a) / a)
    curve, slope = _curve(gap)
    root = jnp.sqrt(curve)
    eta = gap * root
    is_near = jnp.abs(gap) < 0.2
    near = -1 / 540 - eta / 288 + eta**2 / 378 - 77 / 77760 * eta**3
    t, eta_t = jnp.where(is_near, 1.0, gap), jnp.where(is_near, 1.0, eta)
    far = 1 / eta_t**3 - 1 / t**3 - 1 / t**2 - 1 / (12 * t)
    correction = slope / (curve + root) + jnp.where(is_near, near, far) / a
    return jnp.clip(jnp.where(is_large, _normal(eta, a, correction), few), 0.0, 1.0)


def incomplete_beta(a: Array, b: Array, odds: Array) -> Array:
    """Return the regularised incomplete beta function I_x(a, b), elementwise.

    In float64 it is JAX's. In float32 expansions replace that: Temme (1982), leading terms, where a
    and b are large, and DiDonato & Morris (1992), eq. 9, leading term, where one of them is.

    Args:
        a: positive.
        b: positive.
        odds: x / (1 - x), so that x and 1 - x both keep their digits.
    """
    a, b, odds = jnp.broadcast_arrays(a, b, jnp.clip(odds, 1e-30, 1e30))
    x = jnp.minimum(odds / (1 + odds), 1 - jnp.finfo(a.dtype).epsneg)
    if a.dtype != jnp.float32:
        return betainc(a, b, x)
    lesser, greater = jnp.minimum(a, b), jnp.maximum(a, b)
    both, one = lesser >= _LARGE, (lesser < _LARGE) & (greater >= 25 * _LARGE)
    few = betainc(jnp.where(both | one, 1.0, a), jnp.where(both | one, 1.0, b), x)
    many = _large_beta(jnp.where(both, a, _LARGE), jnp.where(both, b, _LARGE), odds)
    # 1 - x is to the power of b: -log(1 - x) = log(1 + odds).
    small = jnp.where(one, lesser, 1.0)
    is_b = b >= a
    log_power = jnp.log1p(jnp.where(is_b, odds, 1 / odds))
    z = jnp.where(one, (greater + 0.5 * (lesser - 1)) * log_power, 1.0)
    z = jnp.minimum(z, 1e6)
    skewed = jnp.where(is_b, gammainc(small, z), gammaincc(small, z))
    return jnp.clip(jnp.where(both, many, jnp.where(one, skewed, few)), 0.0, 1.0)


def _large_beta(a: Array, b: Array, odds: Array) -> Array:
    """Return I_x(a, b) for large a and b, elementwise."""
    total = a + b
    share_a, share_b = a / total, b / total
    # x - a / total, over a / total and over b / total.
    above = (b * odds - a) / (total * (1 + odds))
    u = _within(above / share_a)
    v = _within(-above / share_b)
    (curve_u, slope_u), (curve_v, slope_v) = _curve(u), _curve(v)
    curve = share_b * curve_u + share_a * curve_v
    eta = above / jnp.sqrt(share_a * share_b) * jnp.sqrt(curve)
    slope = share_b / share_a * slope_u - share_a / share_b * slope_v
    correction = -jnp.sqrt(share_a * share_b) * slope / (curve + jnp.sqrt(curve))
    return _normal(-eta, total, correction)


def _normal(eta: Array, size: Array, correction: Array) -> Array:
    """Return the normal distribution's upper tail at eta sqrt(size), corrected."""
    density = jnp.exp(-0.5 * size * jnp.square(eta)) / jnp.sqrt(2 * jnp.pi * size)
    return 0.5 * erfc(eta * jnp.sqrt(0.5 * size)) + density * correction


def _curve(t: Array) -> tuple[Array, Array]:
    """Return s(t) = 2 (t - log(1 + t)) / t², which is 1 at 0, and (s(t) - 1) / t."""
    is_near = jnp.abs(t) < 0.1
    near, far = jnp.where(is_near, t, 0.0), jnp.where(is_near, 1.0, t)
    slope_near = jnp.zeros_like(t)
    for k in range(9, 0, -1):
        slope_near = 2 * (-1) ** k / (k + 2) + near * slope_near
    curve_far = 2 * (1 - jnp.log1p(far) / far) / far
    curve = jnp.where(is_near, 1 + near * slope_near, curve_far)
    return curve, jnp.where(is_near, slope_near, (curve_far - 1) / far)


def _within(t: Array) -> Array:
    """Return t, clipped where a tail is empty: powers, log(1 + t) and derivatives stay finite."""
    return jnp.clip(t, -1 + 2 * jnp.finfo(t.dtype).eps, 1e6)
