"""Likelihoods of counts whose log rate is f; distribution functions and draws of all counts.

NumPyro takes the rate itself. In float32 exp(f) is 0 below f = -87, where its log has no gradient.

Its densities are differences of terms of the size of the count times its log, which lose a nat at a
million in float32. Those here are sums of small terms, in Loader's (2000) saddle-point form.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.nn import softplus
from jax.scipy.special import betainc, gammainc, gammaincc, gammaln, ndtr
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey

_KINDS: Any = dist  # so that type checkers don't narrow distributions to NumPyro's unions
BINOMIAL: Any = (dist.BinomialProbs, dist.BinomialLogits)

_LARGE = 16.0  # Stirling's series has the digits of float64 from here on
# Above these arguments the series of `jax.scipy.special` have fewer digits than an approximation by
# a normal: in float32 they lose a digit for every factor of ten, and return noise at a million.
_LARGE_GAMMA = {"float32": 200.0, "float64": 1e5}
_LARGE_BETA = {"float32": 50.0, "float64": float("inf")}


class PoissonLog(dist.Poisson):
    """Counts with a log rate: y ~ Poisson(exp(log_rate)).

    It is NumPyro's `Poisson` with gradients that are finite for any f below 88 in float32, and
    below 709 in float64, where exp(f) overflows. Its distribution function is right to 1e-4 in
    float32, for counts of any size.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import likelihoods
    >>> y = likelihoods.PoissonLog(jnp.array([-100.0, 0.0]))
    >>> [round(p, 2) for p in y.log_prob(jnp.array([1, 0])).tolist()]
    [-100.0, -1.0]

    Args:
        log_rate: log of the expected count: f, or f plus the log of an exposure.
    """

    arg_constraints = {"log_rate": constraints.real}  # noqa: RUF012 - NumPyro's declaration

    def __init__(self, log_rate: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.log_rate = jnp.asarray(log_rate, float)
        super().__init__(jnp.exp(self.log_rate), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        count = jnp.asarray(value, self.log_rate.dtype)
        some = jnp.maximum(count, 1.0)
        excess = some * exp_minus_linear(self.log_rate - jnp.log(some))
        seen = -excess - 0.5 * jnp.log(2 * jnp.pi * some) - _stirling_error(some)
        log_p = jnp.where(count > 0, seen, -jnp.exp(self.log_rate))
        return jnp.where(constraints.nonnegative_integer(value), log_p, -jnp.inf)

    def cdf(self, value: Array) -> Array:
        return distribution_function(self, value)


class NegativeBinomialLog(dist.NegativeBinomialLogits):
    """Counts that vary more than Poisson ones, with a log mean.

    It is NumPyro's `NegativeBinomial2` with gradients that are finite for any f. The mean is
    exp(log_mean), and the variance is mean + mean² / concentration. Its distribution function is
    right to 1e-3 in float32, for counts of any size.

    >>> import jax
    >>> from dgp_ppl import likelihoods
    >>> jax.grad(lambda f: likelihoods.NegativeBinomialLog(f, 3.0).log_prob(2))(-50.0).tolist()
    2.0

    Args:
        log_mean: log of the expected count: f, or f plus the log of an exposure.
        concentration: positive; the Poisson distribution is the limit of large values.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "log_mean": constraints.real, "concentration": constraints.positive,
    }  # fmt: skip

    def __init__(
        self, log_mean: ArrayLike, concentration: ArrayLike, *, validate_args: bool | None = None
    ) -> None:
        self.log_mean, total = jnp.broadcast_arrays(
            jnp.asarray(log_mean, float), jnp.asarray(concentration, float)
        )
        logits: Any = self.log_mean - jnp.log(total)
        super().__init__(total, logits, validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        count = jnp.asarray(value, self.log_mean.dtype)
        size: Any = self.total_count
        logits: Any = self.logits
        some = jnp.maximum(count, 1.0)
        # With p = size / (size + mean), the logs of total * p / size and total * (1 - p) / count.
        total = some + size
        log_size = jnp.log(total / size) - softplus(logits)
        log_count = jnp.log(total / some) - softplus(-logits)
        excess = size * exp_minus_linear(log_size) + some * exp_minus_linear(log_count)
        constant = _stirling_error(total) - _stirling_error(size) - _stirling_error(some)
        seen = constant - excess - 0.5 * jnp.log(2 * jnp.pi * some * total / size)
        log_p = jnp.where(count > 0, seen, -size * softplus(logits))
        return jnp.where(constraints.nonnegative_integer(value), log_p, -jnp.inf)

    def cdf(self, value: Array) -> Array:
        return distribution_function(self, value)


class _Geometric(dist.GeometricProbs):
    """NumPyro's, which gives the count 0 the log probability of p = 0 where p is 1."""

    def log_prob(self, value: Array) -> Array:
        count = jnp.asarray(value)
        p: Any = jnp.where(count > 0, self.probs, 0.0)
        return count * jnp.log1p(-p) + jnp.log(self.probs)


def exact_count(distribution: Any) -> Any:
    """Return ours for a distribution whose density NumPyro gets wrong, and others as they are."""
    if type(distribution) is dist.GeometricProbs:
        return _Geometric(distribution.probs)
    return distribution


def distribution_function(distribution: Any, value: ArrayLike) -> Array:
    """Return P(Y <= y); of counts right to 1e-3 in float32, where NumPyro's is not or lacks."""
    d, y = distribution, jnp.asarray(value, float)
    count = jnp.maximum(jnp.floor(y), 0.0)
    if isinstance(d, _KINDS.Poisson):
        p = _upper_gamma(count + 1, jnp.asarray(d.rate))
    elif isinstance(d, _KINDS.GammaPoisson):
        p = _lower_beta(jnp.asarray(d.concentration), count + 1, jnp.asarray(d.rate))
    elif isinstance(d, BINOMIAL):
        by_logits = isinstance(d, _KINDS.BinomialLogits)
        odds = jnp.exp(-d.logits) if by_logits else (1 - d.probs) / d.probs
        left = d.total_count - count
        p = jnp.where(left > 0, _lower_beta(jnp.maximum(left, 1.0), count + 1, odds), 1.0)
    elif isinstance(d, _KINDS.GeometricProbs | _KINDS.GeometricLogits):
        p = -jnp.expm1((count + 1) * jnp.log1p(-d.probs))
    elif isinstance(d, _KINDS.ZeroInflatedProbs):
        p = d.gate + (1 - d.gate) * distribution_function(d.base_dist, y)
    elif isinstance(d, _KINDS.ExpandedDistribution):
        return distribution_function(d.base_dist, y)
    elif d.event_shape or d.support.is_discrete:
        return d.cdf(value)
    else:
        y = jnp.broadcast_to(y, jnp.broadcast_shapes(y.shape, d.batch_shape))
        if not isinstance(d, _KINDS.TransformedDistribution):
            inside, known, above = _placed(y, d.support)
            return jnp.where(inside, jnp.clip(d.cdf(known), 0.0, 1.0), above)
        falls = False
        for transform in reversed(d.transforms):
            inside, known, above = _placed(y, transform.codomain)
            end = jnp.where(above ^ (transform.sign < 0), jnp.inf, -jnp.inf)
            y, falls = jnp.where(inside, transform.inv(known), end), falls ^ (transform.sign < 0)
        p = distribution_function(d.base_dist, y)
        return jnp.where(falls, 1 - p, p)
    return jnp.where(y < 0, 0.0, p)


def _placed(y: Array, support: Any) -> tuple[Array, Array, Array]:
    """Return whether y is in a support, y or else a value that is, and whether y is above it."""
    inside = support(y) & jnp.isfinite(y)
    known = jnp.where(inside, y, support.feasible_like(y))
    return inside, known, y > known


def whole(support: Any, value: Array) -> tuple[Array, Array]:
    """Return where y is in a discrete support, and y with values of the support elsewhere.

    NumPyro indexes by classes, so these become integers. Counts may exceed the largest integer.
    """
    inside = support(value)
    entries = inside.reshape(inside.shape + (1,) * support.event_dim)
    value = jnp.where(entries, value, support.feasible_like(value))
    entry = getattr(support, "base_constraint", support)
    return inside, value.astype(int) if hasattr(entry, "upper_bound") else value


def draw(distribution: Any, key: PRNGKey) -> Array:
    """Draw y once. Under `jax.vmap` NumPyro's sampler of binomial distributions may never end."""
    d = distribution
    if isinstance(d, _KINDS.Independent):
        return draw(d.base_dist, key)
    if isinstance(d, _KINDS.BetaBinomial):
        key, key_p = random.split(key)
        p = random.beta(key_p, d.concentration1, d.concentration0, d.batch_shape)
        return _binomial(key, d.total_count, p, d.batch_shape)
    if isinstance(d, BINOMIAL):
        return _binomial(key, d.total_count, jnp.asarray(d.probs), d.batch_shape)
    return d.sample(key)


def _binomial(key: PRNGKey, total: ArrayLike, p: Array, shape: tuple[int, ...]) -> Array:
    """Draw numbers of successes in at most 1 + log2(total) rounds, exactly (Relles 1972).

    A round draws the median of the uniform numbers of all trials. If it is below p, the trials
    below it are successes, and those above it are left; else those below it.
    """

    def again(state: tuple[Any, ...]) -> tuple[Any, ...]:
        key, left, p, count = state
        key, key_median = random.split(key)
        middle = jnp.floor(0.5 * left) + 1
        above = jnp.maximum(left - middle, 0.0)
        median = random.beta(key_median, middle, above + 1)
        below = (median <= p) & (left > 0)
        share = jnp.where(below, (p - median) / (1 - median), p / median)
        left = jnp.where(below, above, middle - 1)
        return key, left, jnp.clip(share, 0.0, 1.0), count + jnp.where(below, middle, 0.0)

    left, p = (jnp.broadcast_to(jnp.asarray(a, p.dtype), shape) for a in (total, p))
    state = (key, left, p, jnp.zeros_like(p))
    count = lax.while_loop(lambda state: jnp.any(state[1] > 0), again, state)[3]
    return count.astype(int)


def exp_minus_linear(t: Array) -> Array:
    """Return exp(t) - 1 - t, of which no digits cancel near 0."""
    is_near = jnp.abs(t) < 0.1
    near = jnp.where(is_near, t, 0.0)
    series = near**2 * (1 / 2 + near * (1 / 6 + near * (1 / 24 + near * (1 / 120 + near / 720))))
    return jnp.where(is_near, series, jnp.expm1(t) - t)


def _stirling_error(x: Array) -> Array:
    """Return log Γ(x + 1) less Stirling's log(sqrt(2 π x) (x / e)^x)."""
    is_large = x >= _LARGE
    small, large = jnp.where(is_large, 1.0, x), jnp.where(is_large, x, _LARGE)
    stirling = (small + 0.5) * jnp.log(small) - small + 0.5 * jnp.log(2 * jnp.pi)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / large**2) / large**2) / large
    return jnp.where(is_large, series, gammaln(small + 1) - stirling)


def _upper_gamma(a: Array, x: Array) -> Array:
    """Return Q(a, x), the incomplete gamma function; for large a by Wilson and Hilferty (1931)."""
    large = _LARGE_GAMMA[a.dtype.name]
    is_large = a >= large
    x = jnp.clip(x, 1e-30, 1e30)  # keeps derivatives finite
    exact = gammaincc(jnp.where(is_large, 1.0, a), jnp.where(is_large, 1.0, x))
    a, x = jnp.where(is_large, a, large), jnp.where(is_large, x, large)
    gap = jnp.clip((x - a) / a, -1 + jnp.finfo(a.dtype).eps)
    above = jnp.expm1(jnp.log1p(gap) / 3)  # (x / a)^(1/3) - 1, without cancellation
    return jnp.where(is_large, ndtr(-3 * jnp.sqrt(a) * (above + 1 / (9 * a))), exact)


def _lower_beta(a: Array, b: Array, odds: Array) -> Array:
    """Return the regularised incomplete beta function I_x(a, b), odds = x / (1 - x).

    Source: Paulson 1942, "An approximate normalization of the analysis of variance distribution",
    where a and b are large; DiDonato and Morris 1992, "Significant digit computation of the
    incomplete beta function ratios", equation 9, leading term, where one of them is.
    """
    a, b, odds = jnp.broadcast_arrays(a, b, jnp.clip(odds, 1e-30, 1e30))
    large = _LARGE_BETA[a.dtype.name]
    lesser, greater = jnp.minimum(a, b), jnp.maximum(a, b)
    both, one = lesser >= large, (lesser < large) & (greater >= 25 * large)
    x = jnp.minimum(odds / (1 + odds), 1 - jnp.finfo(a.dtype).epsneg)
    exact = betainc(jnp.where(both | one, 1.0, a), jnp.where(both | one, 1.0, b), x)
    root = jnp.cbrt(odds * b / a)
    z = (1 - 1 / (9 * b)) * root - (1 - 1 / (9 * a))
    normal = ndtr(z / jnp.sqrt(jnp.square(root) / (9 * b) + 1 / (9 * a)))
    # 1 - x is to the power of b, or x to the power of a: -log(1 - x) = log(1 + odds).
    shape = jnp.where(one, lesser, 1.0)
    log_power = jnp.log1p(jnp.where(b >= a, odds, 1 / odds))
    at = jnp.minimum(jnp.where(one, (greater + 0.5 * (lesser - 1)) * log_power, 1.0), 1e6)
    skewed = jnp.where(b >= a, gammainc(shape, at), gammaincc(shape, at))
    return jnp.where(both, normal, jnp.where(one, skewed, exact))
