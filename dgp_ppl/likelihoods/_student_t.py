"""Noise with heavy tails."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import gammaln, log_ndtr, ndtr
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood
from dgp_ppl.likelihoods._quadrature import LEAST, evenly_spaced, log_integral
from dgp_ppl.linalg._products import deviation

# Nodes of the trapezoidal rule over the log of a precision, for expected log densities.
_STEP = 0.6
_LOGS = np.arange(-34, 2.8, _STEP)
_BELOW = math.exp(_LOGS[0]) * _STEP / math.expm1(_STEP)  # the sum of exp(u) below the first node
LEAST_DF = 3.0  # of a row given others, where the scale is .58 of the sd
_MANY = 10.0  # from here on Stirling's series is exact


class StudentT(AnalyticLikelihood, dist.StudentT):
    """Student t noise: y ~ f + scale · t(df). It is NumPyro's, with expectations over a Gaussian f.

    The noise is Gaussian with a random precision. So the density of y with f integrated out, and
    the expected log density, are one-dimensional integrals of closed forms. They are right to 1e-5
    of their size while f is less than a million scales from y.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods import StudentT
    >>> y = StudentT(4.0, jnp.zeros(2), 0.5)
    >>> round(float(y.variance[0]), 2)  # 0.5² · 4 / (4 - 2)
    0.5

    Args:
        df: degrees of freedom, a number or of the shape of f.
        loc: f, [..., N], the median of y.
        scale: scale of the noise in the units of y, a number or of the shape of f.
    """

    @property
    def latent(self) -> Array:
        """The median of y, f."""
        loc: Any = self.loc  # the array itself, not a copy, as `observe` asks for
        return loc

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array:
        df, scale = jnp.asarray(self.df), jnp.asarray(self.scale)
        unit = df * jnp.square(scale)
        spread, square = var / unit, jnp.square(value - self.latent) / unit
        # E log(1 + z²) = ∫ exp(-w) (1 - E exp(-w z²)) du, with w = exp(u) and a Gaussian z.
        w = jnp.exp(jnp.asarray(_LOGS, square.dtype)).reshape((-1,) + (1,) * square.ndim)
        noise = 2 * spread * w
        less = -jnp.expm1(-square * w / (1 + noise) - 0.5 * jnp.log1p(noise))
        below = jnp.log1p(_BELOW * (square + spread))
        expected = _STEP * jnp.sum(jnp.exp(-w) * less, axis=0) + below
        return _log_constant(df) - jnp.log(scale) - 0.5 * (df + 1) * expected

    def predictive(self, var: Array) -> dist.Distribution:
        return _Convolved(self.df, self.latent, self.scale, var)


class _Convolved(dist.Distribution):
    """The sum of a Student t variable, with this df, loc and scale, and a Gaussian, with `var`."""

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
        "var": constraints.nonnegative,
    }
    support: Any = constraints.real

    def __init__(self, df: Any, loc: Array, scale: Any, var: Array) -> None:
        self.df, self.loc, self.scale, self.var = df, loc, scale, var
        super().__init__(jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(var)))

    @property
    def mean(self) -> Array:
        return dist.StudentT(self.df, self.loc, self.scale).mean

    @property
    def variance(self) -> Array:
        return self.var + dist.StudentT(self.df, self.loc, self.scale).variance

    def log_prob(self, value: Array) -> Array:
        square = jnp.square(value - self.loc)

        def log_density(u: Array) -> Array:
            variance = self._variance(u)
            log_normal = jnp.log(2 * math.pi * variance) + square / variance
            return self._log_weight(u) - 0.5 * log_normal

        return log_integral(log_density, *self._ends_at(square))

    def log_survival(self, value: Array) -> Array:
        """Return log P(Y > y)."""
        away = value - self.loc

        def log_tail(u: Array) -> Array:
            return self._log_weight(u) + log_ndtr(-away / jnp.sqrt(self._variance(u)))

        return log_integral(log_tail, *self._ends_at(jnp.square(jnp.maximum(away, 0.0))))

    def cdf(self, value: Array) -> Array:
        u, step = evenly_spaced(*self._ends(jnp.zeros_like(value - self.loc)))
        below = ndtr((value - self.loc) / jnp.sqrt(self._variance(u)))
        return jnp.minimum(step * jnp.sum(jnp.exp(self._log_weight(u)) * below, axis=0), 1.0)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        key_f, key_y = random.split(key)
        shape = sample_shape + self.batch_shape
        f = self.loc + deviation(self.var) * random.normal(key_f, shape, self.loc.dtype)
        noise: Any = dist.StudentT(self.df, jnp.zeros_like(f), self.scale).sample(key_y)
        return f + noise

    # Given w, whose Gamma distribution has mean 1, the noise is Gaussian of variance scale² / w.

    def _variance(self, u: Array) -> Array:
        """Return the variance of y given w = exp(u)."""
        return self.var + jnp.square(self.scale) * jnp.exp(-u)

    def _log_weight(self, u: Array) -> Array:
        """Return the log density of u."""
        half = 0.5 * jnp.asarray(self.df, u.dtype)
        return log_gamma_at_1(half) - half * (jnp.expm1(u) - u)

    def _ends_at(self, square: Array) -> tuple[Array, Array]:
        """Return the ends, given the squared distance of a value that the noise explains."""
        ratio = square / jnp.square(self.scale)
        return self._ends(jnp.log((self.df + 1) / (self.df + ratio)))

    def _ends(self, mode: Array) -> tuple[Array, Array]:
        """Return where the integrand counts, given the least u at which it may have its mode."""
        nats = 2 * LEAST / jnp.asarray(self.df, mode.dtype)  # u - exp(u) + 1 > -nats between them
        far = nats + jnp.sqrt(2 * nats)
        first = jnp.minimum(mode, 0.0) - far
        return lax.stop_gradient((first, jnp.log1p(far)))


class WithTails(AnalyticLikelihood, dist.Normal):
    """Gaussian noise, where y with f integrated out is Student t of the Gaussian's variance.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods._student_t import WithTails
    >>> y = WithTails(4.0, jnp.zeros(2), 0.3).predictive(jnp.full(2, 0.16))
    >>> round(float(y.variance[0]), 2)  # 0.3² + 0.16
    0.25

    Args:
        df: degrees of freedom of y, above 2.
        loc: f, [..., N].
        scale: standard deviation of the noise in the units of y.
    """

    is_of_y = True  # not of y given f, so `observe` draws y from `predictive`

    def __init__(self, df: Any, loc: Array, scale: Any) -> None:
        self.df = df
        super().__init__(loc, scale)

    @property
    def latent(self) -> Array:
        """The mean of y, f."""
        loc: Any = self.loc
        return loc

    def predictive(self, var: Array) -> dist.Distribution:
        return of_variance(self.df, self.latent, var + self.variance)


class _Exact(_Convolved):
    """A Student t distribution, exact at any `df`, where NumPyro's has rounding errors."""

    def log_prob(self, value: Array) -> Array:
        log_ratio = jnp.log1p(jnp.square((value - self.loc) / self.scale) / self.df)
        return _log_constant(self.df) - jnp.log(self.scale) - 0.5 * (self.df + 1) * log_ratio


def of_variance(df: Any, mean: Array, var: Array) -> dist.Distribution:
    """Return the Student t distribution of this mean and variance, [..., N]."""
    return _Exact(jnp.asarray(df), mean, jnp.sqrt(var * (1 - 2 / df)), jnp.zeros_like(var))


def tails(name: str) -> Any:
    """Register the degrees of freedom of a row given others; at 1,000 it is Gaussian."""
    # Near 2 the variance would say nothing about the width.
    return numpyro.param(f"{name}.df", 1000.0, constraint=constraints.greater_than(LEAST_DF))


def with_tails(f: Array) -> WithTails:
    """Return Gaussian noise for the exact GP of `local`, of which predictions have tails."""
    scale: Any = numpyro.param("noise", 0.3, constraint=constraints.positive)
    return WithTails(tails("g"), f, scale)


def log_survival_of_t(distribution: Any, value: Array) -> Array:
    """Return log P(Y > y) of a Student t distribution, with derivatives in all its arguments."""
    d = distribution
    return _Convolved(d.df, d.loc, d.scale, jnp.zeros(())).log_survival(value)


def log_gamma_at_1(half: Array) -> Array:
    """Return the log density at 1 of a Gamma variable of mean 1 and shape df / 2."""
    return 0.5 * jnp.log(half / (2 * math.pi)) - _stirling(half)


def _log_constant(df: Array) -> Array:
    """Return the log density of t(df) at 0."""
    half = 0.5 * df
    change = half * jnp.log1p(0.5 / half) - 0.5 + _stirling(half + 0.5) - _stirling(half)
    return change - 0.5 * math.log(2 * math.pi)


def _stirling(x: Array) -> Array:
    """Return by how much the log Gamma function is above (x - ½) log x - x + ½ log 2π."""
    # Differences of the large terms would be off by 0.004 nats at x = 5,000 in float32.
    few, many = jnp.minimum(x, _MANY), jnp.maximum(x, _MANY)
    exact = gammaln(few) - (few - 0.5) * jnp.log(few) + few - 0.5 * math.log(2 * math.pi)
    return jnp.where(x < _MANY, exact, 1 / (12 * many) - 1 / (360 * many**3))


def student_t(f: Float[Array, "... N"]) -> dist.Distribution:
    """Student t noise, for targets with outliers. See `StudentT`.

    In a model its scale is the param ``noise``, which starts at 0.3, and its degrees of freedom are
    the param ``df``, which starts at 5 and stays above 2, where y has a variance. Gaussian noise is
    the limit of large `df`.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import likelihoods
    >>> y = likelihoods.student_t(jnp.zeros(3))
    >>> round(float(y.variance[0]), 2)  # 0.3² · 5 / (5 - 2)
    0.15

    Args:
        f: [..., N], from a last layer with one output.

    Returns:
        A `StudentT` distribution with batch shape [..., N].
    """
    scale: Any = numpyro.param("noise", 0.3, constraint=constraints.positive)
    df: Any = numpyro.param("df", 5.0, constraint=constraints.greater_than(2.0))
    return StudentT(df, f, scale)
