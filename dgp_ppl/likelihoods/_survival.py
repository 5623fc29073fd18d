"""Likelihoods of quantities of which some rows only tell a bound, and of truncated ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jax.nn import softplus
from jax.scipy.special import log_ndtr
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._censored import as_flags
from dgp_ppl.likelihoods._counts import exact_count, exp_minus_linear
from dgp_ppl.likelihoods._quadrature import log_integral
from dgp_ppl.likelihoods._student_t import log_gamma_at_1, log_survival_of_t

_NARROW = 0.03  # nats
_KINDS: Any = dist  # so that type checkers don't narrow distributions to NumPyro's unions


class _Censored(dist.Distribution):
    """A quantity with the moments and draws of `base_dist`, of which some rows tell a bound."""

    pytree_data_fields = ("base_dist",)

    def __init__(self, base_dist: Any, event: tuple[int, ...], *flags: Array) -> None:
        self.base_dist = base_dist
        shape: Any = jnp.broadcast_shapes(base_dist.batch_shape, *(a.shape for a in flags))
        super().__init__(shape, event)

    @property
    def support(self) -> Any:
        return self.base_dist.support

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        whole: Any = self.base_dist.expand(self.batch_shape)
        return whole.sample(key, sample_shape)

    @property
    def mean(self) -> Array:
        return self.base_dist.mean

    @property
    def variance(self) -> Array:
        return self.base_dist.variance

    def cdf(self, value: ArrayLike) -> Array:
        return self.base_dist.cdf(value)


class RightCensored(_Censored):
    """Times of which some are only known to be longer: p(y) where observed, S(y) where censored.

    It is called as NumPyro's `RightCensoredDistribution`, which takes log S from 1 - cdf: in
    float32 no row could then cost more than 16 nats. Here log S keeps its digits in both tails. In
    `dgp.observe` NumPyro's are replaced by these. Moments, draws and quantiles are of the time
    itself, without censoring.

    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from dgp_ppl import likelihoods
    >>> y = likelihoods.RightCensored(dist.Weibull(3.0, 2.0), jnp.array([0, 1]))
    >>> [round(p, 2) for p in y.log_prob(jnp.array([2.0, 60.0])).tolist()]
    [-1.26, -400.0]

    Args:
        distribution: distribution of the time: NumPyro's `Normal`, `LogNormal`, `StudentT`,
            `Cauchy`, `Logistic`, `Laplace`, `SoftLaplace`, `Exponential`, `Weibull`, `Gamma`,
            `Gompertz`, a transformed one of these, or `likelihoods.StudentT`.
        censored: True (or 1) where y is a lower bound, of the batch shape of the distribution.

    Raises:
        TypeError: by `log_prob`, if log S of the distribution is not known.
        ValueError: if `censored` has other values, such as NaN.

    Source: Klein & Moeschberger (2003), "Survival analysis", section 3.5.
    """

    arg_constraints = {"censored": constraints.boolean}  # noqa: RUF012 - NumPyro's declaration
    pytree_data_fields = ("censored",)
    _tail = 1  # of the logs of P(Y <= y) and P(Y > y), where y is censored

    def __init__(self, distribution: Any, censored: ArrayLike = False) -> None:
        self.censored = as_flags("censored", censored, distribution)
        super().__init__(distribution, (), self.censored)

    def is_density(self, value: ArrayLike) -> Array:
        shape = jnp.broadcast_shapes(jnp.shape(value), self.censored.shape)
        return jnp.broadcast_to(~self.censored, shape)

    def log_prob(self, value: ArrayLike) -> Array:
        tail = _log_tails_or_ends(self.base_dist, value)[self._tail]
        return jnp.where(self.censored, tail, self.base_dist.log_prob(value))


class LeftCensored(RightCensored):
    """Quantities of which some are only known to be smaller: F(y) instead of p(y) where censored.

    It is called as NumPyro's `LeftCensoredDistribution`; see `RightCensored`.
    """

    _tail = 0


class IntervalCensored(_Censored):
    """Quantities known to lie in an interval: y is [N, 2], lower and upper ends.

    It is called as NumPyro's `IntervalCensoredDistribution`. The probability is F(upper) -
    F(lower), in both tails, and the density where both ends are equal. An end may be infinite, or
    below the support. Moments and draws, [N], are of the quantity itself.

    Args:
        distribution: as of `RightCensored`.
        left_censored: True where only the upper end counts.
        right_censored: True where only the lower end counts; with `left_censored` too, y lies
            outside of the interval.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "left_censored": constraints.boolean, "right_censored": constraints.boolean,
    }  # fmt: skip
    pytree_data_fields = ("left_censored", "right_censored")

    def __init__(
        self, distribution: Any, left_censored: ArrayLike = False, right_censored: ArrayLike = False
    ) -> None:
        self.left_censored = as_flags("left_censored", left_censored, distribution)
        self.right_censored = as_flags("right_censored", right_censored, distribution)
        super().__init__(distribution, (2,), self.left_censored, self.right_censored)

    @property
    def support(self) -> Any:
        return _ENDS

    def cdf(self, value: ArrayLike) -> Array:
        raise NotImplementedError("cdf: y is an interval")

    def is_density(self, value: ArrayLike) -> Array:
        ends = jnp.asarray(value, float)
        known = (ends[..., 0] == ends[..., 1]) & ~self.left_censored & ~self.right_censored
        return jnp.stack([known, jnp.zeros_like(known)], axis=-1)  # both ends are one number

    def log_prob(self, value: ArrayLike) -> Array:
        low, high = jnp.moveaxis(jnp.asarray(value, float), -1, 0)
        both = jax.vmap(lambda y: _log_tails_or_ends(self.base_dist, y))(jnp.stack([low, high]))
        (below_low, below_high), (above_low, above_high) = both
        # The difference of the probabilities of the tail that they are the smaller part of.
        upper = above_low < below_high
        larger = jnp.where(upper, above_low, below_high)
        less = larger - jnp.where(upper, above_high, below_low)
        far = less > _NARROW
        between = larger + _log_of_rest(-jnp.where(far, less, 1.0))
        # Digits cancel in a narrow interval, so take the density at its middle times its width.
        width = jnp.where(far | ~(high > low), 1.0, high - low)
        middle = jnp.where(far, self.base_dist.support.feasible_like(low), 0.5 * (low + high))
        found = jnp.where(far, between, self.base_dist.log_prob(middle) + jnp.log(width))
        found = jnp.where(self.right_censored, above_low, found)
        outside = jnp.where(self.right_censored, jnp.logaddexp(below_low, above_high), below_high)
        return jnp.where(self.left_censored, outside, found)


class _Truncated(dist.Distribution):
    """A truncated distribution of NumPyro's that holds, as its draws do, at any distance of ends.

    NumPyro's densities are infinite or NaN from 13 scales on, and its draws lie beyond the ends.
    """

    arg_constraints = {}  # noqa: RUF012 - NumPyro's has checked them, and an end may be infinite
    pytree_data_fields = ("base_dist", "low", "high", "_support")

    def __init__(self, numpyros: Any) -> None:
        self.base_dist, self._support = numpyros.base_dist, numpyros.support
        self.low = jnp.asarray(getattr(numpyros, "low", -jnp.inf), float)
        self.high = jnp.asarray(getattr(numpyros, "high", jnp.inf), float)
        super().__init__(numpyros.batch_shape)

    @property
    def support(self) -> Any:
        return self._support

    def _log_between(self, low: Array, high: Array) -> Array:
        """Return log P(low < Y < high) without truncation."""
        ends = jnp.stack(jnp.broadcast_arrays(low, high), axis=-1)
        found = IntervalCensored(self.base_dist).log_prob(ends)  # a density where both are equal
        return jnp.where(high > low, found, -jnp.inf)

    def log_prob(self, value: ArrayLike) -> Array:
        inside = (value >= self.low) & (value <= self.high)
        found = self.base_dist.log_prob(value) - self._log_between(self.low, self.high)
        return jnp.where(inside, found, -jnp.inf)

    def cdf(self, value: ArrayLike) -> Array:
        y = jnp.clip(jnp.asarray(value, float), self.low, self.high)
        total = self._log_between(self.low, self.high)
        return jnp.clip(jnp.exp(self._log_between(self.low, y) - total), 0.0, 1.0)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        base: Any = self.base_dist
        u = 1 - random.uniform(key, sample_shape + self.batch_shape)
        mode, between = jnp.clip(base.loc, self.low, self.high), self._log_between
        total = between(self.low, self.high)
        # On the side of the mode where the draw lies, u is the share of the probability beyond it.
        above = jnp.log(u) <= between(mode, self.high) - total
        sign = jnp.where(above, 1.0, -1.0)
        log_u = jnp.where(above, jnp.log(u), jnp.log(jnp.maximum(1 - u, 2.0**-25)))

        def excess(y: Array) -> Array:
            ends = jnp.where(above, y, self.low), jnp.where(above, self.high, y)
            return between(*ends) - total - log_u

        def place(w: Array) -> Array:
            return jnp.clip(mode + sign * base.scale * jnp.exp(w), self.low, self.high)

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            beyond = excess(place(middle)) > 0
            return jnp.where(beyond, middle, ends[0]), jnp.where(beyond, ends[1], middle)

        ends = lax.fori_loop(0, 36, halve, (jnp.full_like(u, -30.0), jnp.full_like(u, 50.0)))
        y = lax.stop_gradient(place(0.5 * (ends[0] + ends[1])))
        # Whatever the parameters, the probability beyond a draw is u: d excess = 0.
        slope = jnp.exp(base.log_prob(y) - total - log_u) * sign
        change = jnp.maximum(excess(y), -30.0)  # it is -inf where y rounds to the far end
        return y + (change - lax.stop_gradient(change)) / lax.stop_gradient(slope)

    @property
    def mean(self) -> Array:
        return self._moments()[0]

    @property
    def variance(self) -> Array:
        return self._moments()[1]

    def _moments(self) -> tuple[Array, Array]:
        """Return the mean and variance, about the mode, so that no digits cancel."""
        d: Any = self.base_dist
        if not isinstance(d, _KINDS.Normal):
            raise NotImplementedError("moments of a truncated distribution: known of Normal alone")
        mode = jnp.clip(d.loc, self.low, self.high)
        # Relative to the mode, the density at t scales from it is exp(-t² / 2 - slope t).
        slope = (mode - d.loc) / d.scale
        most = 32 / (jnp.abs(slope) + jnp.sqrt(jnp.square(slope) + 32))  # exp(-16) there
        first = jnp.maximum((self.low - mode) / d.scale, -most)
        last = jnp.minimum((self.high - mode) / d.scale, most)
        x, w = np.polynomial.legendre.leggauss(32)
        x, w = (jnp.asarray(a, slope.dtype).reshape(-1, *(1,) * slope.ndim) for a in (x, w))
        t = (first + 0.5 * (last - first) * (1 + x)).astype(slope.dtype)
        weights = w * jnp.exp(-0.5 * jnp.square(t) - slope * t)
        weights = weights / jnp.sum(weights, axis=0)
        mean = jnp.sum(weights * t, axis=0)
        var = jnp.sum(weights * jnp.square(t - mean), axis=0)
        return mode + d.scale * mean, jnp.square(d.scale) * var


class _Ends(constraints.ParameterFreeConstraint):
    """Lower and upper ends of intervals, which may be infinite."""

    event_dim = 1

    def __call__(self, x: Any) -> Any:
        return x[..., 0] <= x[..., 1]

    def feasible_like(self, prototype: Any) -> Any:
        return jnp.broadcast_to(jnp.array([0.0, jnp.inf]), jnp.shape(prototype))


_ENDS = _Ends()
OF_NUMPYRO: dict[type, Any] = {
    dist.RightCensoredDistribution: RightCensored,
    dist.LeftCensoredDistribution: LeftCensored,
    dist.IntervalCensoredDistribution: IntervalCensored,
}
_TRUNCATED: Any = (
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
)


def with_exact_tails(distribution: Any) -> Any:
    """Return ours for a censored, truncated or geometric one of NumPyro's, others as they are."""
    if type(distribution) is dist.Independent:
        entries = with_exact_tails(distribution.base_dist)
        if entries is distribution.base_dist:
            return distribution
        return entries.to_event(distribution.reinterpreted_batch_ndims)
    if isinstance(distribution, _TRUNCATED):
        return _Truncated(distribution)
    if (ours := OF_NUMPYRO.get(type(distribution))) is None:
        return exact_count(distribution)
    return ours(distribution.base_dist, *(getattr(distribution, n) for n in ours.arg_constraints))


def density_test(distribution: Any) -> Callable[[ArrayLike], Array] | None:
    """Return the test of which entries of y have a density, in inverse units of y; None if all do.

    Others have a probability, such as S(y) of censored rows.
    """
    wrappers = _KINDS.Independent | _KINDS.ExpandedDistribution | _KINDS.MaskedDistribution
    while isinstance(distribution, wrappers) or hasattr(distribution, "at_mean"):  # of `observe`
        distribution = getattr(distribution, "at_mean", None) or distribution.base_dist
    return getattr(with_exact_tails(distribution), "is_density", None)


def _log_tails_or_ends(distribution: Any, value: ArrayLike) -> tuple[Array, Array]:
    """Return the logs of P(Y <= y) and P(Y > y), for values out of the support too."""
    y = jnp.asarray(value, float)
    inside = distribution.support(y) & jnp.isfinite(y)
    known = jnp.where(inside, y, distribution.support.feasible_like(y))  # keeps gradients finite
    ends = jnp.where(y > known, 0.0, -jnp.inf), jnp.where(y > known, -jnp.inf, 0.0)
    below, above = _log_tails(distribution, known)
    return jnp.where(inside, below, ends[0]), jnp.where(inside, above, ends[1])


def _log_tails(distribution: Any, y: Array) -> tuple[Array, Array]:
    """Return the logs of P(Y <= y) and P(Y > y), right to float32's digits in both tails."""
    d = distribution
    if isinstance(d, _KINDS.ExpandedDistribution):
        return _log_tails(d.base_dist, y)
    if isinstance(d, _KINDS.TransformedDistribution):
        falls = False
        for transform in reversed(d.transforms):
            y, falls = transform.inv(y), falls ^ (transform.sign < 0)
        below, above = _log_tails(d.base_dist, y)
        return jnp.where(falls, above, below), jnp.where(falls, below, above)
    for kind, tail in _SYMMETRIC.items():
        if isinstance(d, kind):
            z = (y - d.loc) / d.scale
            below, above = tail(jnp.stack([z, -z]))  # it takes long to compile
            return below, above
    if isinstance(d, _KINDS.StudentT):
        return log_survival_of_t(d, 2 * d.loc - y), log_survival_of_t(d, y)
    if isinstance(d, _KINDS.Gamma):
        return _log_gamma_tails(jnp.asarray(d.concentration), d.rate * y)
    if isinstance(d, _KINDS.Exponential):
        above = -d.rate * y
    elif isinstance(d, _KINDS.Weibull):
        above = -jnp.power(y / d.scale, d.concentration)
    elif isinstance(d, _KINDS.Gompertz):
        above = -d.concentration * jnp.expm1(d.rate * y)
    else:
        raise TypeError(
            f"censored: distribution is {type(d).__name__}, whose log survival function is not "
            "known, wanted Normal, LogNormal, StudentT, Cauchy, Logistic, Laplace, SoftLaplace, "
            "Exponential, Weibull, Gamma, Gompertz, or a TransformedDistribution of one"
        )
    return _log_of_rest(above), above


_SYMMETRIC: dict[Any, Callable[[Array], Array]] = {  # log P(Y <= y) at (y - loc) / scale
    dist.Normal: log_ndtr,
    dist.Logistic: lambda z: -softplus(-z),
    dist.Cauchy: lambda z: jnp.log(jnp.arctan2(1.0, -z) / math.pi),
    dist.Laplace: lambda z: jnp.where(
        z < 0, z - math.log(2), jnp.log1p(-0.5 * jnp.exp(-jnp.where(z < 0, 0.0, z)))
    ),
    dist.SoftLaplace: lambda z: (
        jnp.log(jnp.arctan(jnp.exp(jnp.clip(z, -8.0, 80.0))) * 2 / math.pi) + jnp.minimum(z + 8, 0)
    ),
}


def _log_of_rest(log_p: Array) -> Array:
    """Return log(1 - p)."""
    near = log_p > -0.7
    small, large = jnp.where(near, log_p, -1.0), jnp.where(near, -1.0, log_p)
    least = -jnp.finfo(log_p.dtype).tiny
    return jnp.where(
        near, jnp.log(-jnp.expm1(jnp.minimum(small, least))), jnp.log1p(-jnp.exp(large))
    )


def _log_gamma_tails(a: Array, x: Array) -> tuple[Array, Array]:
    """Return the logs of the regularised incomplete gamma functions P(a, x) and Q(a, x)."""
    a, x = jnp.broadcast_arrays(a, x)
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    upper = x > a
    # The density at x times an integral over the way v from x into the tail that x lies in: over y
    # in the upper one, and over -log y in the lower one. Its scale is at least the least one here.
    at_x = log_gamma_at_1(a) - a * exp_minus_linear(jnp.log(x / a))
    at_x = at_x - jnp.where(upper, jnp.log(x), 0.0)
    least = jnp.where(upper, x / (1 + x), 1 / a)
    most = jnp.where(upper, 50 + 10 * jnp.sqrt(x), 50 / a + 10 / jnp.sqrt(a))

    def log_integrand(w: Array) -> Array:
        v = jnp.exp(w)
        return w + jnp.where(upper, (a - 1) * jnp.log1p(v / x) - v, -a * v - x * jnp.expm1(-v))

    tail = jnp.minimum(at_x + log_integral(log_integrand, jnp.log(least) - 17, jnp.log(most)), 0.0)
    rest = _log_of_rest(tail)
    return jnp.where(upper, rest, tail), jnp.where(upper, tail, rest)
